"""Nodes as agents and operators write them: registration, leases, cordons."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.ids import ActorId, NodeId, RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.regions import NodeSpec
from durable.model.resources import Resources
from durable.validation.text import PLAIN_TEXT

MAX_NODES_PER_CALL = 10_000
MAX_LEASE_SECONDS = 86_400
AGENT = "durable_agent"
OPERATOR = "durable_operator"

_NOW = text("SELECT coalesce(CAST(:now AS timestamptz), clock_timestamp())")

_IN_USE = text("""
    SELECT n.node, n.used_cpu_millis, n.used_memory_mib, n.used_gpus,
           array(SELECT h.device FROM regional.device_holds AS h
                  WHERE h.region = n.region AND h.node = n.node) AS held
      FROM regional.nodes AS n WHERE n.region = :region AND n.node = ANY(:nodes)
""")

_ROWS = """jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
    node text, zone text, pool text, cpu_millis bigint, memory_mib bigint, gpus bigint,
    devices text[], labels jsonb, taints jsonb, dedicated_to text)"""

# A node that registers is ready again, one that is only declared stays what it was; its cordon is
# the operator's and stays.
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

_GONE = text("""
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

# Never shorter than the lease before it: an older agent may still live by that one.
_BEGIN_SESSIONS = text("""
    INSERT INTO regional.node_leases AS l (region, node, session, epoch, renewed_at, expires_at)
    SELECT :region, unnest(CAST(:nodes AS text[])), 1, :epoch, :now, :expires_at
        ON CONFLICT (region, node) DO UPDATE
       SET session = l.session + 1, epoch = :epoch, renewed_at = :now,
           expires_at = greatest(l.expires_at, :expires_at)
    RETURNING node, session
""")

# No region lock: a heartbeat only meets its own row, in the order of the nodes' names. A lease
# never gets shorter, so heartbeats out of order do no harm. One that has lapsed is not renewed:
# what ran there may have been given up, so its agent begins anew, as after a fence.
_MINE = text("""
    SELECT FROM regional.node_leases WHERE region = :region AND node = ANY(:nodes)
     ORDER BY node FOR UPDATE
""")

# A statement of its own, so that its clock is read after the wait for the rows.
_RENEW = text("""
    UPDATE regional.node_leases AS l
       SET renewed_at = greatest(l.renewed_at, moment.now),
           expires_at = greatest(l.expires_at, moment.now + make_interval(secs => :ttl))
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(node text, session bigint),
           (SELECT coalesce(CAST(:now AS timestamptz), clock_timestamp()) AS now) AS moment,
           regional.regions AS r
     WHERE r.region = :region AND l.region = :region AND l.node = row.node
       AND l.session = row.session AND l.epoch = r.epoch AND l.expires_at > moment.now
    RETURNING l.node
""")

_CORDON = text("""
    SELECT cordon_reason FROM regional.nodes WHERE region = :region AND node = :node
""")

_SET_CORDON = text("""
    UPDATE regional.nodes
       SET cordon_reason = :reason, cordoned_by = :actor, changed_version = :version
     WHERE region = :region AND node = :node
""")


async def register_nodes(
    databases: Databases,
    region: RegionId,
    nodes: Sequence[NodeSpec],
    *,
    epoch: int,
    lease_ttl_seconds: int,
    now: datetime | None = None,
) -> dict[NodeId, int]:
    """Begins a session for each node: what it is, and a lease at the region's epoch.

    An agent that comes back after a fence calls this only once it has stopped what moved away.
    """
    assert len(nodes) <= MAX_NODES_PER_CALL, f"at most {MAX_NODES_PER_CALL} nodes per call"
    assert 1 <= lease_ttl_seconds <= MAX_LEASE_SECONDS, f"a lease lasts 1 to {MAX_LEASE_SECONDS} s"

    async def work(connection: AsyncConnection) -> dict[NodeId, int]:
        known = await lock_region(connection, region)
        if known.epoch != epoch:
            raise RefusedError(
                RefusalCode.FENCED_AGENT,
                f"{region} is at epoch {known.epoch}, not {epoch}; "
                "stop what moved elsewhere, then register at the new epoch.",
            )
        await _write_nodes(connection, region, nodes, registers=True)
        at: datetime = (await connection.execute(_NOW, {"now": now})).scalar_one()
        lease = {
            "region": region,
            "nodes": [str(node.id) for node in nodes],
            "epoch": epoch,
            "now": at,
            "expires_at": at + timedelta(seconds=lease_ttl_seconds),
        }
        begun = await connection.execute(_BEGIN_SESSIONS, lease)
        return {NodeId(row.node): row.session for row in begun}

    engine = databases.at_region(region, AGENT)
    return await transact(engine, work, doing=f"register nodes of {region}")


async def declare_nodes(
    databases: Databases, region: RegionId, nodes: Sequence[NodeSpec], *, actor: ActorId
) -> None:
    """Writes down what nodes there are; none takes work before its agent has registered it."""
    assert len(nodes) <= MAX_NODES_PER_CALL, f"at most {MAX_NODES_PER_CALL} nodes per call"

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        if await _write_nodes(connection, region, nodes, registers=False):
            await audit.append(
                connection,
                region,
                actor=actor,
                action="declare nodes",
                target=f"region/{region}",
                after={"nodes": len(nodes)},
            )

    engine = databases.at_region(region, AGENT)
    await transact(engine, work, doing=f"declare nodes of {region}")


async def _write_nodes(
    connection: AsyncConnection, region: RegionId, nodes: Sequence[NodeSpec], *, registers: bool
) -> bool:
    """Whether any of them is new or not what it was."""
    assert len({node.id for node in nodes}) == len(nodes), "each node is named once"
    gone = {"region": region, "nodes": [str(node.id) for node in nodes]}
    removed = (await connection.execute(_GONE, gone)).scalar_one_or_none()
    if removed is not None and registers:
        raise RefusedError(
            RefusalCode.UNKNOWN_NODE,
            f"Node {removed} was removed from {region} for good; register it under another name.",
        )
    await _refuse_shrinking_below_use(connection, region, nodes)
    await _refuse_stranding(connection, region, nodes)
    named = {"region": region, "rows": json.dumps([_row(node) for node in nodes])}
    version = await advance_region(connection, region)
    how = {"version": version, "registers": registers}
    changed = (await connection.execute(_UPSERT_NODES, {**named, **how})).rowcount
    await connection.execute(_DROP_DEVICES, named)
    await connection.execute(_ADD_DEVICES, named)
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
            f"Node {row.node} runs {row.tenant}/{row.workload}, which may not run on what the "
            "node now says of its zone, labels or tenant; drain it before it changes.",
        )


async def renew_leases(
    databases: Databases,
    region: RegionId,
    sessions: Mapping[NodeId, int],
    *,
    lease_ttl_seconds: int,
    now: datetime | None = None,
) -> frozenset[NodeId]:
    """Extends the leases of these sessions.

    A node that is missing from the answer was replaced, fenced, or silent for too long: its agent
    stops what must not run without a lease, and registers again.
    """
    assert 1 <= lease_ttl_seconds <= MAX_LEASE_SECONDS, f"a lease lasts 1 to {MAX_LEASE_SECONDS} s"
    rows = json.dumps([{"node": node, "session": session} for node, session in sessions.items()])

    async def work(connection: AsyncConnection) -> frozenset[NodeId]:
        await connection.execute(_MINE, {"region": region, "nodes": list(map(str, sessions))})
        renewed = await connection.execute(
            _RENEW, {"region": region, "rows": rows, "now": now, "ttl": lease_ttl_seconds}
        )
        return frozenset(NodeId(row.node) for row in renewed)

    engine = databases.at_region(region, AGENT)
    return await transact(engine, work, doing=f"renew leases in {region}")


async def cordon_node(
    databases: Databases, region: RegionId, node: NodeId, *, actor: ActorId, reason: str
) -> None:
    """Keeps new work off a node; what runs there stays."""
    await _cordon(databases, region, node, actor, PLAIN_TEXT.validate_python(reason))


async def uncordon_node(
    databases: Databases, region: RegionId, node: NodeId, *, actor: ActorId
) -> None:
    await _cordon(databases, region, node, actor, None)


async def _cordon(
    databases: Databases, region: RegionId, node: NodeId, actor: ActorId, reason: str | None
) -> None:
    of = {"region": region, "node": node, "reason": reason}

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        found = (await connection.execute(_CORDON, of)).one_or_none()
        if found is None:
            raise RefusedError(
                RefusalCode.UNKNOWN_NODE, f"{region} has no node {node}; see `durable fleet show`."
            )
        if found.cordon_reason == reason:
            return
        version = await advance_region(connection, region)
        who = {"actor": None if reason is None else actor, "version": version}
        await connection.execute(_SET_CORDON, {**of, **who})
        await audit.append(
            connection,
            region,
            actor=actor,
            action="uncordon node" if reason is None else "cordon node",
            target=f"node/{node}",
            after={"reason": reason},
        )

    engine = databases.at_region(region, OPERATOR)
    return await transact(engine, work, doing=f"cordon {node}")
