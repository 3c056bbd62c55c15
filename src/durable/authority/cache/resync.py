"""A whole region in parts: a cache goes on answering while tens of thousands of nodes are read.

The parts are of different versions. What changed since the first of them is read last and laid
over, so that the sum is the region at one version after all.
"""

from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.cache.snapshot import NodeView, RegionSnapshot, node_of, read_changes
from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.regions import read_region
from durable.model.ids import RegionId
from durable.model.states import NodeState

NODES_PER_READ = 1_000

_NODES = text("""
    SELECT to_jsonb(n) || jsonb_build_object(
               'lease_epoch', l.epoch, 'lease_expires_at', l.expires_at) AS node
      FROM (SELECT * FROM regional.nodes
             WHERE region = :region AND node > :after ORDER BY node LIMIT :most) AS n
      LEFT JOIN regional.node_leases AS l USING (region, node)
     ORDER BY n.node
""")


async def read_whole(databases: Databases, region: RegionId) -> RegionSnapshot:
    """The region as it is when the last part is read."""
    first = (await read_region(databases, region)).version
    nodes: dict[str, NodeView] = {}
    after = ""
    while True:
        part = await _read_part(databases, region, after)
        nodes.update((view.node, view) for view in part)
        if len(part) < NODES_PER_READ:
            break
        after = part[-1].node
    changes = await read_changes(databases, region, first)
    nodes.update((view.node, view) for view in changes.nodes)
    standing = (view for view in nodes.values() if view.state != NodeState.REMOVED)
    return replace(changes, nodes=tuple(standing))


async def _read_part(databases: Databases, region: RegionId, after: str) -> list[NodeView]:
    async def work(connection: AsyncConnection) -> list[NodeView]:
        of = {"region": region, "after": after, "most": NODES_PER_READ}
        return [node_of(row.node) for row in await connection.execute(_NODES, of)]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the nodes of {region}")
