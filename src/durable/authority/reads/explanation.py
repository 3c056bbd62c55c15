"""What was asked of a region for a workload and what became of it, for those who ask why."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.model.ids import Generation, RegionId, TenantId, Token, WorkloadName
from durable.model.records import LastTry, RecordedIntent, Transition

MOST = 1_000

# The prefix is served by the primary key, whose keys are ordered by their bytes.
_INTENTS = text("""
    SELECT region, key, outcome, version, recorded_at FROM regional.intents
     WHERE region = :region AND key LIKE :prefix
       AND (CAST(:attempt AS text) IS NULL OR split_part(key, '/', 5) = :attempt)
     ORDER BY version DESC, key DESC LIMIT :last
""")

# What was started is found by the keys of its intents: claims that ended have no index by name.
_LAST_TRIES = text("""
    WITH started AS (
        SELECT r.region, r.token, r.slot, r.attempt, r.node, r.freed_version,
               count(*) OVER (PARTITION BY r.slot) AS tries,
               row_number() OVER (PARTITION BY r.slot ORDER BY r.token DESC) AS from_last
          FROM regional.intents AS i
          JOIN regional.reservations AS r
            ON r.region = i.region AND r.token = CAST(i.outcome ->> 'token' AS bigint)
         WHERE i.region = :region AND i.key LIKE :prefix AND i.outcome ->> 'kind' = 'granted'
           AND split_part(split_part(i.key, '/', 6), '.', 1) = 'start'
    )
    SELECT s.slot, s.attempt, s.node, s.tries, o.state, b.stop_reason,
           CASE WHEN o.state IN ('failed', 'stopped') THEN o.evidence ELSE b.evidence END
               AS evidence,
           CASE WHEN o.state IN ('failed', 'stopped') THEN o.received_at ELSE b.released_at END
               AS at
      FROM started AS s
      JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.observations AS o USING (region, token)
     WHERE s.from_last = 1 AND s.freed_version IS NOT NULL
     ORDER BY s.slot
""")

_TRANSITIONS = text("""
    SELECT region, version, object, from_state, to_state, actor, evidence, database_role, at
      FROM regional.transitions
     WHERE region = :region AND object IN ('reservation/' || :token, 'binding/' || :token)
     ORDER BY version, ordinal
""")


async def read_intents(
    databases: Databases,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    attempt: int | None = None,
    *,
    last: int = MOST,
) -> list[RecordedIntent]:
    """The newest intents of a generation, or of one attempt of it, in the order of commits."""
    of = {
        "region": region,
        "prefix": _prefix(tenant, workload, generation),
        "attempt": None if attempt is None else f"a{attempt}",
        "last": min(last, MOST),
    }

    async def work(connection: AsyncConnection) -> list[RecordedIntent]:
        rows = (await connection.execute(_INTENTS, of)).mappings()
        return [RecordedIntent(**dict(row)) for row in rows][::-1]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the intents of {tenant}/{workload}")


async def read_last_tries(
    databases: Databases,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> list[LastTry]:
    """How each slot ended that was started and is no longer there, in the order of slots."""
    of = {"region": region, "prefix": _prefix(tenant, workload, generation)}

    async def work(connection: AsyncConnection) -> list[LastTry]:
        rows = (await connection.execute(_LAST_TRIES, of)).mappings()
        return [LastTry(**dict(row)) for row in rows]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the ends of {tenant}/{workload}")


def _prefix(tenant: TenantId, workload: WorkloadName, generation: Generation) -> str:
    """What the keys of a generation begin with, for LIKE."""
    prefix = f"{tenant}/{workload}/g{generation}/"
    # Names hold none of LIKE's own signs today; whoever allows one must not widen this.
    return prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


async def read_transitions(
    databases: Databases, region: RegionId, token: Token
) -> list[Transition]:
    """Every move of one claim, from its reservation to its release."""

    async def work(connection: AsyncConnection) -> list[Transition]:
        rows = await connection.execute(_TRANSITIONS, {"region": region, "token": str(token)})
        return [Transition(**dict(row)) for row in rows.mappings()]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the moves of token {token}")
