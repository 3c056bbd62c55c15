"""Which devices of a node are not healthy: they take no new work, and what holds one keeps it."""

from collections.abc import Collection

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.ids import DeviceId, NodeId, RegionId
from durable.model.refusal import RefusalCode, RefusedError

_READ = text("""
    SELECT n.unhealthy_devices, array(SELECT d.device FROM regional.devices AS d
                                       WHERE d.region = n.region AND d.node = n.node) AS devices
      FROM regional.nodes AS n WHERE n.region = :region AND n.node = :node
""")

_SET = text("""
    UPDATE regional.nodes SET unhealthy_devices = :devices, changed_version = :version
     WHERE region = :region AND node = :node
""")


@regional_transaction("durable_agent", "report the devices of {node}")
async def report_unhealthy_devices(
    connection: AsyncConnection, region: RegionId, node: NodeId, unhealthy: Collection[DeviceId]
) -> None:
    """All of the node's devices that are not healthy now; every other one is."""
    key = {"region": region, "node": node}
    await lock_region(connection, region)
    found = (await connection.execute(_READ, key)).one_or_none()
    if found is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_NODE, f"{region} has no node {node}; see `durable fleet show`."
        )
    devices = sorted(map(str, unhealthy))
    unknown = sorted(set(devices) - set(found.devices))
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_NODE,
            f"Node {node} has no device {unknown[0]}; register the node with it first.",
        )
    if devices == found.unhealthy_devices:
        return
    version = await advance_region(connection, region)
    await connection.execute(_SET, {**key, "devices": devices, "version": version})
