"""The one metadata, and the few kinds of column and rule that every table is made of."""

from typing import Any, cast

from sqlalchemy import BigInteger, CheckConstraint, Column, Computed, MetaData, Text, text
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import TypeEngine, UserDefinedType

from durable.model.resources import DIMENSIONS

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_index",
        "uq": "%(table_name)s_%(column_0_N_name)s_unique",
        "ck": "%(table_name)s_%(constraint_name)s",
        "fk": "%(table_name)s_%(column_0_N_name)s_reference",
        "pk": "%(table_name)s_key",
    }
)


class TransactionId(UserDefinedType[str]):
    """PostgreSQL's `xid8`, which never wraps around."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


# So that a migrated database can be compared with this metadata.
cast(dict[str, Any], ischema_names)["xid8"] = TransactionId


def written_in_column() -> Column[str]:
    """The last transaction that wrote the row; a trigger keeps it current for the change feed."""
    return Column(
        "written_in", TransactionId, nullable=False, server_default=text("pg_current_xact_id()")
    )


def text_column(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def integer_column(name: str, *, nullable: bool = False, default: str | None = None) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable, server_default=default and text(default))


def time_column(name: str, *, nullable: bool = False, default: str | None = None) -> Column[object]:
    default_text = default and text(default)
    return Column(name, TIMESTAMP(timezone=True), nullable=nullable, server_default=default_text)


def json_column(name: str, *, nullable: bool = False, default: str | None = None) -> Column[object]:
    return Column(name, JSONB, nullable=nullable, server_default=default and text(default))


def derived_column(name: str, kind: type[TypeEngine[Any]], expression: str) -> Column[Any]:
    return Column(name, kind, Computed(expression, persisted=True))


def amount_columns(prefix: str = "") -> list[Column[int]]:
    return [integer_column(f"{prefix}{dimension}", default="0") for dimension in DIMENSIONS]


def bounded(name: str, low: str, high: str | None = None) -> CheckConstraint:
    """0 <= low, and low <= high, in every dimension."""
    parts = [f"{low}{d} >= 0" for d in DIMENSIONS]
    if high is not None:
        parts += [f"{low}{d} <= {high}{d}" for d in DIMENSIONS]
    return CheckConstraint(" AND ".join(parts), name=name)


def one_of(column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known")
