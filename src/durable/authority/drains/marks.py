"""Marks the claims on the nodes of a drain, so that their workloads replace them."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.transaction import regional_transaction
from durable.authority.drains.orders import ROLE
from durable.model.fleet.drain import Drain
from durable.model.ids import RegionId
from durable.signals.names import drain_id

# A late attempt waits for the end of the drain that is under way, and then marks nothing.
_RUNS = text("""
    SELECT FROM regional.drains
     WHERE region = :region AND request = :request AND ended_at IS NULL FOR SHARE
""")

# What this drain has marked already keeps its mark.
_MARK = text("""
    WITH marked AS (
        INSERT INTO regional.replacements (region, token, cause, actor, reason, requested_at)
        SELECT r.region, r.token, :cause, :actor, :reason, clock_timestamp()
          FROM regional.reservations AS r
          LEFT JOIN regional.shares AS s USING (region, tenant, workload, generation)
         WHERE r.region = :region AND r.node = ANY(:nodes) AND r.freed_version IS NULL
           AND NOT (:wait_for_jobs AND coalesce(s.spec ->> 'kind', '') = 'job')
            ON CONFLICT DO NOTHING
        RETURNING region, token
    )
    SELECT r.tenant, r.workload, r.generation
      FROM marked JOIN regional.reservations AS r USING (region, token)
""")


@dataclass(frozen=True)
class Marked:
    """How many claims were marked now, and of which shares."""

    claims: int
    shares: frozenset[tuple[str, str, int]]


@regional_transaction(ROLE, "mark what runs on {drain.target}")
async def mark_claims(connection: AsyncConnection, region: RegionId, drain: Drain) -> Marked:
    """Marks every live claim on the nodes, once each, for as long as the drain runs."""
    running = await connection.execute(_RUNS, {"region": region, "request": drain.request})
    if running.first() is None:
        return Marked(0, frozenset())
    rows = await connection.execute(
        _MARK,
        {
            "region": region,
            "cause": drain_id(drain.target),
            "actor": drain.actor,
            "reason": drain.reason[:500],
            "nodes": list(map(str, drain.nodes)),
            "wait_for_jobs": drain.wait_for_jobs,
        },
    )
    marked = [(row.tenant, row.workload, row.generation) for row in rows]
    if marked:
        await audit.append(
            connection,
            region,
            actor=drain.actor,
            action="mark claims",
            target=drain_id(drain.target),
            after={"claims": len(marked), "request": drain.request},
        )
    return Marked(len(marked), frozenset(marked))
