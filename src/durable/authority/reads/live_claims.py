"""The live claims of one placement, for a workflow that must not rely on its own memory."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import regional_transaction
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.slots import ObservedSlot

_LIVE_CLAIMS = text("""
    SELECT r.slot, r.token, r.attempt, r.node, s.state, coalesce(s.evidence, '') AS evidence,
           s.log_directory, s.since, b.stop_requested_at IS NOT NULL AS stop_requested,
           CASE WHEN r.state = 'held' THEN r.expires_at END AS expires_at
      FROM regional.reservations AS r
      LEFT JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN LATERAL (
           SELECT state, evidence, log_directory, since
             FROM regional.binding_status(clock_timestamp()) AS x
            WHERE x.region = r.region AND x.token = r.token) AS s ON true
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.generation = :generation AND r.freed_version IS NULL
     ORDER BY r.slot
""")


@regional_transaction("durable_reader", "read the claims of {tenant}/{workload}")
async def read_live_claims(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
) -> list[ObservedSlot]:
    """Every claim of the placement that counts against node, grant, devices and slot."""
    placement = {"region": region, "tenant": tenant, "workload": workload, "generation": generation}
    rows = (await connection.execute(_LIVE_CLAIMS, placement)).mappings()
    return [ObservedSlot.model_validate(dict(row)) for row in rows]
