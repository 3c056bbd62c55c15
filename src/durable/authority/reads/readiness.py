"""Whether regions could take a placement now: live nodes, and claims that were not freed."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import AwareDatetime
from sqlalchemy import text

from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.model.fleet.region_life import STEP
from durable.model.ids import RegionId
from durable.model.states import RegionState
from durable.validation.value import Value

# Reuse may be late: what is freed within this of its expiry is freed in time.
OVERDUE_AFTER_SECONDS = 60.0


class RegionReadiness(Value):
    """One region: a placement needs a live node, and worker and agent to act on it."""

    region: RegionId
    state: RegionState
    # When its lease lapsed; None while it lasts, or if it never had one.
    lease_lapsed_at: AwareDatetime | None = None
    # When its clock went back, as long as its lease has not been renewed since.
    clock_went_back_at: AwareDatetime | None = None
    nodes: int
    # Those whose agent has renewed their lease under the region's present epoch.
    live: int
    # Those without a live lease that a simulating agent would host.
    simulated_away: int
    # Reservations held past their expiry by more than the margin.
    overdue: int
    overdue_since: AwareDatetime | None


_READINESS = text("""
    SELECT g.region, g.state,
           CASE WHEN g.lease_expires_at <= clock.now THEN g.lease_expires_at END
               AS lease_lapsed_at,
           CASE WHEN g.lease_expires_at <= g.clock_went_back_at THEN g.clock_went_back_at
                WHEN g.clock_seen_at > clock.now + :step THEN clock.now END AS clock_went_back_at,
           n.nodes, n.live, n.simulated_away, h.overdue, h.overdue_since
      FROM regional.regions AS g
     CROSS JOIN (SELECT coalesce(CAST(:now AS timestamptz), clock_timestamp()) AS now) AS clock
     CROSS JOIN LATERAL (
         SELECT count(*) AS nodes,
                count(*) FILTER (WHERE is_live) AS live,
                count(*) FILTER (WHERE NOT is_live
                                   AND n.labels ->> 'driver' IS DISTINCT FROM 'process')
                    AS simulated_away
           FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
          CROSS JOIN LATERAL (
              SELECT coalesce(l.expires_at > clock.now AND l.epoch = g.epoch, false)
                  AS is_live) AS lease
          WHERE n.region = g.region AND n.state <> 'removed') AS n
     CROSS JOIN LATERAL (
         SELECT count(*) AS overdue, min(expires_at) AS overdue_since
           FROM regional.reservations AS r
          WHERE r.region = g.region AND r.state = 'held'
            AND r.expires_at < clock.now - make_interval(secs => :margin)) AS h
     ORDER BY g.region
""")


async def read_readiness(
    databases: Databases, url: str, *, now: datetime | None = None
) -> Sequence[RegionReadiness]:
    """The regions of one database."""

    async def read(connection: AsyncConnection) -> list[RegionReadiness]:
        asked = {"margin": OVERDUE_AFTER_SECONDS, "now": now, "step": STEP}
        rows = await connection.execute(_READINESS, asked)
        return [RegionReadiness(**row) for row in rows.mappings()]

    engine = databases.at(url, "durable_reader")
    return await transact(engine, read, doing="read how ready the regions are")
