"""How long replicas took from their claim until they served, and how long leases last."""

from collections.abc import Mapping

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.validation.value import Value

# Only what serves now: the newest version of each workload, and no more rows than live claims.
_STARTS = text("""
    SELECT r.tenant, r.workload,
           extract(epoch FROM percentile_cont(0.5) WITHIN GROUP (
               ORDER BY o.received_at - r.reserved_at))::float8 AS seconds
      FROM regional.reservations AS r
      JOIN regional.observations AS o USING (region, token)
     WHERE r.region = :region AND r.claimed_slot IS NOT NULL AND o.state = 'serving'
     GROUP BY r.tenant, r.workload
""")
_LEASE = text("""
    SELECT coalesce(max(extract(epoch FROM expires_at - renewed_at)), 0)::float8
      FROM regional.node_leases WHERE region = :region AND expires_at > clock_timestamp()
""")


class RegionPace(Value):
    """The median start of each workload that serves here, and the longest node lease."""

    start_seconds: Mapping[tuple[TenantId, WorkloadName], float]
    lease_seconds: float


@regional_transaction("durable_reader", "read how fast {region} starts work")
async def read_pace(connection: AsyncConnection, region: RegionId) -> RegionPace:
    rows = await connection.execute(_STARTS, {"region": region})
    starts = {(TenantId(row.tenant), WorkloadName(row.workload)): row.seconds for row in rows}
    lease = (await connection.execute(_LEASE, {"region": region})).scalar_one()
    return RegionPace(start_seconds=starts, lease_seconds=lease)
