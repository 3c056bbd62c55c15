"""Nodes as agents register them."""

import json
from collections.abc import Sequence

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import ActorId, RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources

MAX_NODES_PER_CALL = 10_000

_IN_USE = text("""
    SELECT n.node, n.used_cpu_millis, n.used_memory_mib, n.used_gpus,
           array(SELECT h.device FROM regional.device_holds AS h
                  WHERE h.region = n.region AND h.node = n.node) AS held
      FROM regional.nodes AS n WHERE n.region = :region AND n.node = ANY(:nodes)
""")

_ROWS = """jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
    node text, zone text, pool text, cpu_millis bigint, memory_mib bigint, gpus bigint,
    devices text[], labels jsonb, taints jsonb, dedicated_to text)"""

# A node that registers is ready again; one that is only declared keeps its state. The cordon is the
# operator's and stays in either case.
_UPSERT_NODES = text(f"""
    INSERT INTO regional.nodes AS n
           (region, node, zone, pool, capacity_cpu_millis, capacity_memory_mib, capacity_gpus,
            labels, taints, dedicated_to, changed_version)
    SELECT :region, node, zone, pool, cpu_millis, memory_mib, gpus, labels, taints, dedicated_to,
           :version FROM {_ROWS}
        ON CONFLICT (region, node) DO UPDATE
       SET zone = excluded.zone, pool = excluded.pool, labels = excluded.labels,
           capacity_cpu_millis = excluded.capacity_cpu_millis,
           capacity_memory_mib = excluded.capacity_memory_mib,
           capacity_gpus = excluded.capacity_gpus, taints = excluded.taints,
           dedicated_to = excluded.dedicated_to, changed_version = :version,
           unhealthy_devices = CASE n.unhealthy_devices WHEN '{{}}' THEN '{{}}' ELSE
               array(SELECT device FROM unnest(n.unhealthy_devices) AS device, {_ROWS}
                      WHERE row.node = n.node AND device = ANY(row.devices)) END,
           state = CASE WHEN :registers THEN 'ready' ELSE n.state END
     WHERE (n.zone, n.pool, n.labels, n.capacity_cpu_millis, n.capacity_memory_mib,
            n.capacity_gpus, n.taints, n.dedicated_to)
           IS DISTINCT FROM
           (excluded.zone, excluded.pool, excluded.labels, excluded.capacity_cpu_millis,
            excluded.capacity_memory_mib, excluded.capacity_gpus, excluded.taints,
            excluded.dedicated_to)
        OR (:registers AND n.state <> 'ready')
""")

_STRANDED = text(f"""
    SELECT r.node, r.tenant, r.workload
      FROM {_ROWS} JOIN regional.reservations AS r ON r.node = row.node
     WHERE r.region = :region AND r.freed_version IS NULL
       AND NOT regional.may_run(
           r.tenant, r.requirements, r.region, row.zone, row.labels, row.dedicated_to)
     ORDER BY r.node LIMIT 1
""")

_ZONES = text("SELECT zone FROM regional.zones WHERE region = :region ORDER BY zone")

_REMOVED = text("""
    SELECT node FROM regional.nodes
     WHERE region = :region AND node = ANY(:nodes) AND state = 'removed' ORDER BY node LIMIT 1
""")

_ADD_DEVICES = text(f"""
    INSERT INTO regional.devices (region, node, device)
    SELECT :region, node, unnest(devices) FROM {_ROWS} ON CONFLICT DO NOTHING
""")

_DROP_DEVICES = text(f"""
    DELETE FROM regional.devices AS d USING {_ROWS}
     WHERE d.region = :region AND d.node = row.node AND NOT d.device = ANY(row.devices)
""")


@regional_transaction("durable_agent", "declare nodes of {region}")
async def declare_nodes(
    connection: AsyncConnection, region: RegionId, nodes: Sequence[NodeSpec], *, actor: ActorId
) -> None:
    """Writes what nodes there are; none takes work before its agent has registered it."""
    assert len(nodes) <= MAX_NODES_PER_CALL, f"at most {MAX_NODES_PER_CALL} nodes per call"
    await lock_region(connection, region)
    if await write_nodes(connection, region, nodes, registers=False):
        await audit.append(
            connection,
            region,
            actor=actor,
            action="declare nodes",
            target=f"region/{region}",
            after={"nodes": len(nodes)},
        )


async def write_nodes(
    connection: AsyncConnection, region: RegionId, nodes: Sequence[NodeSpec], *, registers: bool
) -> bool:
    """Writes the nodes and their devices; answers whether any of them is new or has changed."""
    assert len({node.id for node in nodes}) == len(nodes), "each node is named once"
    ids = {"region": region, "nodes": [str(node.id) for node in nodes]}
    removed = (await connection.execute(_REMOVED, ids)).scalar_one_or_none()
    if removed is not None and registers:
        raise RefusedError(
            RefusalCode.UNKNOWN_NODE,
            f"Node {removed} was removed from {region} for good; register it under another name.",
        )
    await _refuse_undeclared_zones(connection, region, nodes)
    await _refuse_shrinking_below_use(connection, region, nodes)
    await _refuse_stranding(connection, region, nodes)
    rows = {"region": region, "rows": json.dumps([_row(node) for node in nodes])}
    version = await advance_region(connection, region)
    upsert = {**rows, "version": version, "registers": registers}
    changed = (await connection.execute(_UPSERT_NODES, upsert)).rowcount
    await connection.execute(_DROP_DEVICES, rows)
    await connection.execute(_ADD_DEVICES, rows)
    return changed > 0


def _row(node: NodeSpec) -> dict[str, object]:
    return {
        "node": node.id,
        "zone": node.zone,
        "pool": node.pool,
        "cpu_millis": node.capacity.cpu_millis,
        "memory_mib": node.capacity.memory_mib,
        "gpus": node.capacity.gpus,
        "devices": list(node.devices),
        "labels": dict(node.labels),
        "taints": [taint.model_dump(mode="json") for taint in node.taints],
        "dedicated_to": node.dedicated_to,
    }


async def _refuse_undeclared_zones(
    connection: AsyncConnection, region: RegionId, nodes: Sequence[NodeSpec]
) -> None:
    zones = (await connection.execute(_ZONES, {"region": region})).scalars().all()
    for node in nodes:
        if zones and node.zone not in zones:
            raise RefusedError(
                RefusalCode.UNKNOWN_ZONE,
                f"{region} has no zone {node.zone}, which node {node.id} names; its zones are "
                f"{', '.join(zones)}. Name one of them, or declare it with `durable fleet load`.",
            )


async def _refuse_shrinking_below_use(
    connection: AsyncConnection, region: RegionId, nodes: Sequence[NodeSpec]
) -> None:
    offered = {str(node.id): node for node in nodes}
    for row in await connection.execute(_IN_USE, {"region": region, "nodes": list(offered)}):
        node = offered[row.node]
        used = Resources.of(row.used_cpu_millis, row.used_memory_mib, row.used_gpus)
        if not used.fits_in(node.capacity):
            raise RefusedError(
                RefusalCode.CAPACITY_IN_USE,
                f"Node {row.node} holds {used} and now offers {node.capacity}; "
                "drain it before it shrinks.",
            )
        gone = sorted(set(row.held) - set(node.devices))
        if gone:
            raise RefusedError(
                RefusalCode.CAPACITY_IN_USE,
                f"Node {row.node} no longer offers {gone[0]}, which is held; "
                "drain it before it loses a device.",
            )


async def _refuse_stranding(
    connection: AsyncConnection, region: RegionId, nodes: Sequence[NodeSpec]
) -> None:
    rows = json.dumps([_row(node) for node in nodes])
    found = await connection.execute(_STRANDED, {"region": region, "rows": rows})
    row = found.one_or_none()
    if row is not None:
        raise RefusedError(
            RefusalCode.CAPACITY_IN_USE,
            f"Node {row.node} runs {row.tenant}/{row.workload}, which its new zone, labels "
            "or tenant would not allow; drain it before it changes.",
        )
