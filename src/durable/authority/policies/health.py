"""What a region shows of the revision that decides there: waits, refusals, time to place."""

from datetime import datetime

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import PolicyRevision, RegionId
from durable.model.policy.rollout import PolicyHealth

_PENDING = text("""
    SELECT coalesce(sum(waiting), 0) AS waiting,
           (SELECT count(*) FROM regional.reservations
             WHERE region = :region AND freed_version IS NULL) AS live
      FROM regional.requests WHERE region = :region AND state <> 'withdrawn'
""")

# By its recent decisions alone: what is read again and again must not grow with the past. A slot
# waits since its share was given it, whatever else its request waited for; whoever waited before
# the revision came into force did not wait for it. A request that has begun to wait again since
# then no longer says how long it waited before, and a slot of a job that runs few at once waits for
# others, so those waits do not count.
_DECIDED = text("""
    WITH watch AS (
        SELECT coalesce(CAST(:since AS timestamptz), changed_at) AS since
          FROM regional.policy_states WHERE region = :region AND revision = :revision
    ), decided AS (
        SELECT region, tenant, workload, generation, attempt FROM regional.decisions, watch
         WHERE region = :region AND decided_at >= since AND policy_revision = :revision
    ), answered AS (
        SELECT i.outcome ->> 'kind' AS kind, CASE
               WHEN s.at_once IS NULL AND coalesce(due.at, q.enqueued_at) IS NOT NULL
               THEN greatest(0, extract(epoch FROM i.recorded_at
                             - greatest(due.at, q.enqueued_at, (SELECT since FROM watch)))) END
               AS waited
          FROM decided
          JOIN regional.intents AS i USING (region, tenant, workload, generation, attempt)
          LEFT JOIN regional.requests AS q
               ON q.region = i.region AND q.tenant = i.tenant AND q.workload = i.workload
              AND q.generation = i.generation AND q.enqueued_at <= i.recorded_at
          LEFT JOIN regional.shares AS s
               ON s.region = i.region AND s.tenant = i.tenant AND s.workload = i.workload
              AND s.generation = i.generation
          LEFT JOIN LATERAL (
               SELECT s.given_at[array_position(s.slots, i.slot)] AS at) AS due
               ON due.at <= i.recorded_at
         WHERE i.step = 'reserve'
    )
    SELECT (SELECT count(*) FROM decided) AS decisions, count(*) AS reserves,
           count(*) FILTER (WHERE kind = 'refused') AS refused,
           percentile_disc(0.95) WITHIN GROUP (ORDER BY waited)
               FILTER (WHERE kind = 'granted') AS waited
      FROM answered
""")


@regional_transaction("durable_reader", "read how much waits in {region}")
async def read_pending_percent(connection: AsyncConnection, region: RegionId) -> float:
    return await _pending_percent(connection, region)


@regional_transaction("durable_reader", "read what policy {revision} does in {region}")
async def read_health(
    connection: AsyncConnection,
    region: RegionId,
    revision: PolicyRevision,
    since: datetime | None = None,
) -> PolicyHealth:
    """By the region's own rows and clock, since the revision came into force there."""
    of = {"region": region, "revision": revision, "since": since}
    decided = (await connection.execute(_DECIDED, of)).one()
    return PolicyHealth(
        pending_percent=await _pending_percent(connection, region),
        decisions=decided.decisions,
        reserves=decided.reserves,
        refused=decided.refused,
        place_seconds=None if decided.waited is None else float(decided.waited),
    )


async def _pending_percent(connection: AsyncConnection, region: RegionId) -> float:
    row = (await connection.execute(_PENDING, {"region": region})).one()
    known = row.waiting + row.live
    return 100.0 * float(row.waiting) / float(known) if known else 0.0
