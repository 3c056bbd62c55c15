"""What kinds of node there are, for those who must know whether something could ever fit."""

from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.model.ids import RegionId
from durable.scheduling.snapshot.region import NodeFacts

# Nodes of one pool are alike, so there are few shapes however many nodes there are.
_SHAPES = text("""
    SELECT min(node) AS node, zone, capacity_cpu_millis, capacity_memory_mib, capacity_gpus,
           labels, taints, dedicated_to
      FROM regional.nodes WHERE region = :region AND state <> 'removed'
     GROUP BY zone, capacity_cpu_millis, capacity_memory_mib, capacity_gpus, labels, taints,
              dedicated_to
     ORDER BY 1
""")


async def read_shapes(databases: Databases, region: RegionId) -> list[NodeFacts]:
    """One node for each kind of node in the region, as if it were empty and ready."""

    async def work(connection: AsyncConnection) -> list[NodeFacts]:
        return [_facts(row) for row in await connection.execute(_SHAPES, {"region": region})]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the kinds of node in {region}")


def _facts(row: Any) -> NodeFacts:
    return NodeFacts(
        node=row.node,
        zone=row.zone,
        capacity=(row.capacity_cpu_millis, row.capacity_memory_mib, row.capacity_gpus),
        used=(0, 0, 0),
        labels=row.labels,
        taints=row.taints,
        dedicated_to=row.dedicated_to,
        ready=True,
        cordoned=False,
        lease_epoch=None,
        lease_expires_at=None,
    )
