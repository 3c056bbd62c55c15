"""What was requested of a region for a workload, and what became of it."""

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.placement.records import LastTry, RecordedIntent

MAX_READ = 1_000

_INTENTS = text("""
    SELECT region, tenant, workload, generation, slot, attempt, step, cause, ordinal, outcome,
           version, recorded_at
      FROM regional.intents
     WHERE region = :region AND tenant = :tenant AND workload = :workload
       AND generation = :generation
       AND (CAST(:attempt AS integer) IS NULL OR attempt = :attempt)
     ORDER BY version DESC, slot DESC, attempt DESC, step DESC, cause DESC, ordinal DESC
     LIMIT :last
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
         WHERE i.region = :region AND i.tenant = :tenant AND i.workload = :workload
           AND i.generation = :generation AND i.step = 'start' AND i.outcome ->> 'kind' = 'granted'
    )
    SELECT s.slot, s.attempt, s.node, s.tries, o.state, b.stop_reason,
           CASE WHEN o.state IN ('failed', 'stopped') THEN o.evidence ELSE b.evidence END
               AS evidence,
           o.log_directory,
           CASE WHEN o.state IN ('failed', 'stopped') THEN o.received_at ELSE b.released_at END
               AS at
      FROM started AS s
      JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.observations AS o USING (region, token)
     WHERE s.from_last = 1 AND s.freed_version IS NOT NULL
     ORDER BY s.slot
""")


@regional_transaction("durable_reader", "read the intents of {tenant}/{workload}")
async def read_intents(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    attempt: int | None = None,
    *,
    last: int = MAX_READ,
) -> list[RecordedIntent]:
    """The newest intents of a generation, or of one attempt of it, in the order of commits."""
    rows = await connection.execute(
        _INTENTS,
        {
            "region": region,
            "tenant": tenant,
            "workload": workload,
            "generation": generation,
            "attempt": attempt,
            "last": min(last, MAX_READ),
        },
    )
    return [RecordedIntent.read(dict(row)) for row in rows.mappings()][::-1]


@regional_transaction("durable_reader", "read the ends of {tenant}/{workload}")
async def read_last_tries(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> list[LastTry]:
    """How each slot ended that was started and has no claim any more, in the order of slots."""
    key = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    rows = await connection.execute(_LAST_TRIES, key)
    return [LastTry(**dict(row)) for row in rows.mappings()]
