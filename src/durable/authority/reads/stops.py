"""Bindings that were asked to stop and still stand: where they are, and their nodes' leases."""

from pydantic import AwareDatetime
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.model.ids import NodeId, RegionId, Slot, TenantId, WorkloadName
from durable.validation.value import Value

_STOPS = text("""
    SELECT r.region, r.slot, r.node, b.stop_requested_at AS requested_at,
           l.expires_at AS lease_expires_at, clock_timestamp() AS read_at
      FROM regional.reservations AS r
      JOIN regional.bindings AS b USING (region, token)
      LEFT JOIN regional.node_leases AS l ON l.region = r.region AND l.node = r.node
     WHERE r.region = :region AND r.tenant = :tenant AND r.workload = :workload
       AND r.freed_version IS NULL AND r.state = 'bound' AND b.stop_requested_at IS NOT NULL
     ORDER BY r.slot
""")


class Stop(Value):
    """A slot whose node was asked to stop it and has not said that it did."""

    region: RegionId
    slot: Slot
    node: NodeId
    requested_at: AwareDatetime
    lease_expires_at: AwareDatetime | None
    read_at: AwareDatetime

    @property
    def is_silent(self) -> bool:
        """Whether nobody keeps the node's lease any more."""
        return self.lease_expires_at is None or self.lease_expires_at <= self.read_at


async def read_stops(
    databases: Databases, region: RegionId, tenant: TenantId, workload: WorkloadName
) -> list[Stop]:
    """What of a workload is being stopped in a region, by slot."""
    of = {"region": region, "tenant": tenant, "workload": workload}

    async def work(connection: AsyncConnection) -> list[Stop]:
        return [Stop(**dict(row)) for row in (await connection.execute(_STOPS, of)).mappings()]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read what stops in {region}")
