"""A region's free room by kind of node, as admission needs it: few rows for many nodes."""

import math
from typing import Any

from sqlalchemy import text

from durable.authority.cache.region_read import DRAWS, ROOM, draw_of, grant_of
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.model.ids import RegionId
from durable.model.states import NodeState, RegionState
from durable.scheduling.regions.room import RegionRoom
from durable.scheduling.snapshot.region import NodeFacts, Snapshot

_REGION = text(f"SELECT r.epoch, r.version, r.state, {ROOM}, {DRAWS} AS draws"
               " FROM regional.regions AS r WHERE r.region = :region")  # fmt: skip

_GRANTS = text("""
    SELECT * FROM regional.free_grants(statement_timestamp()) WHERE region = :region
""")

# Nodes of one pool are alike, and most of them are used alike. Of nodes that take no work now only
# the shape counts: it says what could run here one day.
_KINDS = text("""
    SELECT min(node) AS node, min(pool) AS pool, zone, capacity_cpu_millis, capacity_memory_mib,
           capacity_gpus, labels, taints, dedicated_to, takes_work, used_cpu_millis,
           used_memory_mib, used_gpus, count(*) AS nodes
      FROM (SELECT n.node, n.pool, n.zone, n.capacity_cpu_millis, n.capacity_memory_mib,
                   n.capacity_gpus, n.labels, n.taints, n.dedicated_to, l.takes_work,
                   CASE WHEN l.takes_work THEN n.used_cpu_millis ELSE 0 END AS used_cpu_millis,
                   CASE WHEN l.takes_work THEN n.used_memory_mib ELSE 0 END AS used_memory_mib,
                   CASE WHEN l.takes_work THEN n.used_gpus ELSE 0 END AS used_gpus
              FROM regional.nodes AS n
             CROSS JOIN LATERAL (
                   SELECT n.state = 'ready' AND n.cordon_reason IS NULL AND EXISTS (
                          SELECT FROM regional.node_leases AS l
                           WHERE l.region = n.region AND l.node = n.node AND l.epoch = :epoch
                             AND l.expires_at > clock_timestamp()) AS takes_work) AS l
             WHERE n.region = :region AND n.state <> 'removed') AS n
     GROUP BY zone, capacity_cpu_millis, capacity_memory_mib, capacity_gpus, labels, taints,
              dedicated_to, takes_work, used_cpu_millis, used_memory_mib, used_gpus
     ORDER BY 1
""")


@regional_transaction("durable_reader", "read the room of {region}")
async def read_room(connection: AsyncConnection, region: RegionId) -> RegionRoom:
    """The region now, with one node for each kind."""
    row = (await connection.execute(_REGION, {"region": region})).one_or_none()
    if row is None:
        raise unknown_region(region)
    snapshot = Snapshot.empty(region)
    snapshot.epoch, snapshot.version = row.epoch, row.version
    snapshot.is_open = RegionState(row.state) is RegionState.OPEN
    snapshot.room = (row.room_cpu_millis, row.room_memory_mib, row.room_gpus)
    snapshot.draws = tuple(draw_of(entry) for entry in row.draws)
    grants = await connection.execute(_GRANTS, {"region": region})
    snapshot.grants = dict(grant_of(entry) for entry in grants.mappings())
    kinds = (await connection.execute(_KINDS, {"region": region, "epoch": row.epoch})).all()
    snapshot.put([_kind(kind, row.epoch) for kind in kinds])
    return RegionRoom(snapshot, {kind.node: kind.nodes for kind in kinds})


def _kind(row: Any, epoch: int) -> NodeFacts:
    return NodeFacts(
        node=row.node,
        zone=row.zone,
        pool=row.pool,
        capacity=(row.capacity_cpu_millis, row.capacity_memory_mib, row.capacity_gpus),
        used=(row.used_cpu_millis, row.used_memory_mib, row.used_gpus),
        labels=row.labels,
        taints=row.taints,
        dedicated_to=row.dedicated_to,
        state=NodeState.READY,
        cordon_reason=None,
        lease_epoch=epoch if row.takes_work else None,
        lease_expires_at=math.inf if row.takes_work else None,
    )
