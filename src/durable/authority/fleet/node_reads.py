"""Reads of a region's nodes: for their agent, and for people."""

from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.authority.quota.quotas import amount_of
from durable.model.fleet.capacity import Device, Node
from durable.model.fleet.labels import Taint
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import DeviceId, NodeId, PoolId, RegionId, TenantId, ZoneId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Capacity

_DECLARED = text("""
    SELECT g.version, n.node, n.zone, n.pool, n.capacity_cpu_millis, n.capacity_memory_mib,
           n.capacity_gpus, n.labels, n.taints, n.dedicated_to, n.state = 'removed' AS removed,
           array(SELECT d.device FROM regional.devices AS d
                  WHERE d.region = n.region AND d.node = n.node ORDER BY d.device) AS devices
      FROM regional.regions AS g
      LEFT JOIN regional.nodes AS n ON n.region = g.region AND n.changed_version > :since
     WHERE g.region = :region ORDER BY n.node
""")

_NODE = text("""
    SELECT n.*, l.epoch AS lease_epoch, l.expires_at AS lease_expires_at,
           (SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'device', d.device, 'healthy', NOT d.device = ANY(n.unhealthy_devices),
                       'holder', h.token)
                       ORDER BY d.device), '[]')
              FROM regional.devices AS d
              LEFT JOIN regional.device_holds AS h USING (region, node, device)
             WHERE d.region = n.region AND d.node = n.node) AS devices
      FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
     WHERE n.region = :region AND n.node = :node
""")


@regional_transaction("durable_agent", "read the nodes of {region}", commits_each=True)
async def read_declared_nodes(
    connection: AsyncConnection, region: RegionId, *, since: int = 0
) -> tuple[int, list[NodeSpec], list[NodeId]]:
    """The version read, the nodes that changed after `since`, and those removed for good."""
    rows = (await connection.execute(_DECLARED, {"region": region, "since": since})).all()
    if not rows:
        raise unknown_region(region)
    nodes = [row for row in rows if row.node is not None]
    declared = [_declared_node(region, row) for row in nodes if not row.removed]
    return rows[0].version, declared, [NodeId(row.node) for row in nodes if row.removed]


def _declared_node(region: RegionId, row: Any) -> NodeSpec:
    return NodeSpec(
        id=NodeId(row.node),
        region=region,
        zone=ZoneId(row.zone),
        pool=PoolId(row.pool),
        capacity=Capacity(
            cpu_millis=row.capacity_cpu_millis,
            memory_mib=row.capacity_memory_mib,
            gpus=row.capacity_gpus,
        ),
        devices=tuple(DeviceId(device) for device in row.devices),
        labels=row.labels,
        taints=tuple(Taint(**taint) for taint in row.taints),
        dedicated_to=None if row.dedicated_to is None else TenantId(row.dedicated_to),
    )


@regional_transaction("durable_reader", "read node {node}")
async def read_node(connection: AsyncConnection, region: RegionId, node: NodeId) -> Node:
    found = await connection.execute(_NODE, {"region": region, "node": node})
    row = found.mappings().one_or_none()
    if row is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_NODE, f"{region} has no node {node}; see `durable fleet show`."
        )
    plain = (
        "region", "node", "zone", "pool", "labels", "dedicated_to", "state", "cordon_reason",
        "cordoned_by", "lease_epoch", "lease_expires_at",
    )  # fmt: skip
    return Node(
        **{name: row[name] for name in plain},
        capacity=amount_of(row, "capacity_"),
        used=amount_of(row, "used_"),
        taints=tuple(Taint(**taint) for taint in row["taints"]),
        devices=tuple(Device(**device) for device in row["devices"]),
    )
