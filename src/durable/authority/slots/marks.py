"""Marks on claims that are to be replaced: whatever the cause, their workloads find them here."""

from enum import StrEnum
from functools import cache
from typing import NamedTuple

from sqlalchemy import TextClause, text

from durable.authority.db.engine import AsyncConnection
from durable.authority.reads.claims import ClaimFilter, conditions
from durable.model.ids import ActorId, RegionId
from durable.model.overrides.effects import Effects
from durable.validation.text import shorten


class CauseKind(StrEnum):
    """What wants a claim replaced, and can take that back."""

    DRAIN = "drain"
    OVERRIDE = "override"
    POLICY = "policy"
    REQUEST = "request"


class Cause(NamedTuple):
    kind: CauseKind
    # Of the drain's request, the override, the policy's revision, or the request.
    id: str


# Of a claim: tenant, workload and generation.
Share = tuple[str, str, int]

# Where an override lets nothing be placed.
_BARRED = """
    (c.zone = ANY(:avoid_zones) OR c.node = ANY(:avoid_nodes)
     OR c.zone <> CAST(:only_zone AS text) OR c.node <> CAST(:only_node AS text))
"""


@cache
def _mark(named: tuple[str, ...], *, is_barred: bool) -> TextClause:
    # What the same cause has marked already keeps its mark.
    return text(f"""
        WITH marked AS (
            INSERT INTO regional.replacements
                   (region, token, kind, cause, actor, reason, requested_at)
            SELECT c.region, c.token, :cause_kind, :cause, :actor, :reason, clock_timestamp()
              FROM regional.live_claims(statement_timestamp()) AS c
             WHERE {conditions(named)} AND {_BARRED if is_barred else "true"}
                ON CONFLICT DO NOTHING
            RETURNING region, token
        )
        SELECT r.tenant, r.workload, r.generation
          FROM marked JOIN regional.reservations AS r USING (region, token)
    """)


# A claim whose stop was requested ends with its mark; the others stay where they are.
_UNMARK = text("""
    DELETE FROM regional.replacements AS p
     USING regional.live_claims(statement_timestamp()) AS c
     WHERE p.region = :region AND p.kind = :kind AND p.cause = :cause
       AND c.region = p.region AND c.token = p.token AND c.stop_requested_at IS NULL
    RETURNING c.tenant, c.workload, c.generation
""")


async def mark_claims(
    connection: AsyncConnection,
    region: RegionId,
    which: ClaimFilter,
    cause: Cause,
    *,
    actor: ActorId,
    reason: str,
    barred_by: Effects | None = None,
) -> list[Share]:
    """Marks live claims, those alone that the effects keep away if any are named, once each.

    Answers the share of each claim that was marked now. A claim that is marked for another cause as
    well goes when either wants it gone.
    """
    bars: dict[str, object] = {}
    if barred_by is not None:
        bars = {
            "avoid_zones": list(map(str, barred_by.avoid_zones)),
            "avoid_nodes": list(map(str, barred_by.avoid_nodes)),
            "only_zone": barred_by.only_zone,
            "only_node": barred_by.only_node,
        }
    by = {"cause_kind": cause.kind, "cause": cause.id, "actor": actor, "reason": shorten(reason)}
    statement = _mark(which.named, is_barred=barred_by is not None)
    rows = await connection.execute(statement, {"region": region, **by, **bars, **which.parameters})
    return [(row.tenant, row.workload, row.generation) for row in rows]


async def unmark_claims(
    connection: AsyncConnection, region: RegionId, cause: Cause
) -> frozenset[Share]:
    """Removes the marks of a cause from claims that nothing has begun to stop."""
    of = {"region": region, "kind": cause.kind, "cause": cause.id}
    rows = await connection.execute(_UNMARK, of)
    return frozenset((row.tenant, row.workload, row.generation) for row in rows)
