"""Which devices of a node are not healthy: they take no new work, and what holds one keeps it."""

from collections.abc import Collection, Mapping

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.ids import DeviceId, NodeId, RegionId
from durable.model.refusal import RefusalCode, RefusedError

_READ = text("""
    SELECT n.node, n.unhealthy_devices,
           array(SELECT d.device FROM regional.devices AS d
                  WHERE d.region = n.region AND d.node = n.node) AS devices
      FROM regional.nodes AS n WHERE n.region = :region AND n.node = ANY(:nodes)
""")

_SET = text("""
    UPDATE regional.nodes SET unhealthy_devices = :devices, changed_version = :version
     WHERE region = :region AND node = :node
""")


@regional_transaction("durable_agent", "report the devices of nodes")
async def report_unhealthy_devices(
    connection: AsyncConnection,
    region: RegionId,
    unhealthy: Mapping[NodeId, Collection[DeviceId]],
) -> None:
    """All devices of these nodes that are not healthy now; every other one of theirs is."""
    await lock_region(connection, region)
    read = await connection.execute(_READ, {"region": region, "nodes": sorted(unhealthy)})
    nodes = {NodeId(row.node): row for row in read}
    changes: dict[NodeId, list[str]] = {}
    for node, reported in unhealthy.items():
        if node not in nodes:
            raise RefusedError(
                RefusalCode.UNKNOWN_NODE, f"{region} has no node {node}; see `durable fleet show`."
            )
        devices = sorted(map(str, reported))
        if unknown := sorted(set(devices) - set(nodes[node].devices)):
            raise RefusedError(
                RefusalCode.UNKNOWN_NODE,
                f"Node {node} has no device {unknown[0]}; register the node with it first.",
            )
        if devices != nodes[node].unhealthy_devices:
            changes[node] = devices
    if changes:
        version = await advance_region(connection, region)
        for node, devices in changes.items():
            named = {"region": region, "node": node, "devices": devices, "version": version}
            await connection.execute(_SET, named)
