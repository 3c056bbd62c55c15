"""Operators as the global side has them."""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.model.operators.rights import Operator, Right, Scope, Verb

ANY_VERB = "*"

_OPERATORS = """
    SELECT o.operator, o.kind, o.public_key, o.created_by, o.created_at, o.removed_at,
           coalesce(jsonb_agg(jsonb_build_object(
                        'verb', r.verb, 'tenant', r.tenant, 'region', r.region)
                    ORDER BY r.verb, r.tenant, r.region) FILTER (WHERE r.verb IS NOT NULL),
                    '[]') AS rights
      FROM global.operators AS o LEFT JOIN global.operator_rights AS r USING (operator)
     WHERE {which}
     GROUP BY o.operator ORDER BY o.operator
"""
# With their rights; apart from all of them, so that one plan finds a few by their names.
NAMED_OPERATORS = _OPERATORS.format(which="o.operator = ANY(:operators)")
_READ_NAMED = text(NAMED_OPERATORS)
_READ_ALL = text(_OPERATORS.format(which="true"))


async def find_operators(
    connection: AsyncConnection, operators: Iterable[str] | None = None
) -> dict[str, Operator]:
    """These operators, or all of them, by their names; those that were removed as well."""
    if operators is None:
        rows = (await connection.execute(_READ_ALL)).mappings()
    else:
        named = {"operators": names_of(operators)}
        rows = (await connection.execute(_READ_NAMED, named)).mappings()
    return {str(row["operator"]): operator_of(dict(row)) for row in rows}


def names_of(operators: Iterable[str]) -> list[str]:
    return sorted({str(operator) for operator in operators})


def operator_of(row: Mapping[str, Any]) -> Operator:
    """An operator from a row of `NAMED_OPERATORS`, or from its JSON."""
    return Operator(
        id=row["operator"],
        kind=row["kind"],
        public_key=row["public_key"],
        rights=tuple(_right(right) for right in row["rights"] if _is_known(right["verb"])),
        created_by=row["created_by"],
        created_at=row["created_at"],
        removed_at=row["removed_at"],
    )


def _is_known(verb: str) -> bool:
    """A verb of a later release allows nothing here."""
    return verb == ANY_VERB or verb in set(Verb)


def _right(row: Mapping[str, str]) -> Right:
    return Right(
        verb=None if row["verb"] == ANY_VERB else Verb(row["verb"]),
        scope=Scope.model_validate(
            {"tenant": row["tenant"] or None, "region": row["region"] or None}
        ),
    )
