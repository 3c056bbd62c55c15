"""Sessions and leases of nodes: an agent registers its nodes, then keeps them by heartbeats."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.nodes import MAX_NODES_PER_CALL, write_nodes
from durable.authority.fleet.regions import HELD_LEASE, held_lease, lock_region
from durable.model.fleet.manifest import NodeSpec
from durable.model.fleet.region_life import LeaseLeft
from durable.model.ids import NodeId, RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.validation.text import show_moment

MAX_LEASE_SECONDS = 86_400

# Never shorter than the lease before it: an older agent may still live by that one.
_BEGIN_SESSIONS = text("""
    INSERT INTO regional.node_leases AS l
           (region, node, session, epoch, host, renewed_at, expires_at)
    SELECT :region, unnest(CAST(:nodes AS text[])), 1, :epoch, :host, :now, :expires_at
        ON CONFLICT (region, node) DO UPDATE
       SET session = l.session + 1, epoch = :epoch, host = :host, renewed_at = :now,
           expires_at = greatest(l.expires_at, :expires_at)
    RETURNING node, session
""")

# One whose lease has ended cannot be renewed, so what is not found here stays free.
_HOSTED = text("""
    SELECT node, host, expires_at FROM regional.node_leases
     WHERE region = :region AND node = ANY(:nodes) AND host <> :host AND expires_at > :now
     ORDER BY node LIMIT 1
""")

# No region lock: a heartbeat locks only its own rows, in the order of the nodes' names.
_LOCK_LEASES = text("""
    SELECT FROM regional.node_leases WHERE region = :region AND node = ANY(:nodes)
     ORDER BY node FOR UPDATE
""")

# A statement of its own, so that its clock is read after the wait for the rows. A lease never gets
# shorter, so heartbeats out of order do no harm. One that has lapsed is not renewed: what ran there
# may have been given up, so its agent registers again, as after a fence.
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

# Where the region lives in the database of the global side, no other takes its work without it.
_REGION_LEASE = text(f"""
    SELECT {HELD_LEASE}, d.serves_global,
           coalesce(CAST(:now AS timestamptz), clock_timestamp()) AS now
      FROM regional.regions AS r, regional.deployment AS d WHERE r.region = :region
""")


@regional_transaction("durable_agent", "read the lease of {region}")
async def read_region_lease(
    connection: AsyncConnection, region: RegionId, now: datetime | None = None
) -> LeaseLeft:
    """How much of the region's own lease is left for its nodes."""
    row = (await connection.execute(_REGION_LEASE, {"region": region, "now": now})).one_or_none()
    held = None if row is None or row.serves_global else held_lease(row)
    if row is None or held is None:
        return LeaseLeft(seconds=None)
    return LeaseLeft(seconds=held.seconds_left(row.now), has_jumped=held.has_jumped(row.now))


@regional_transaction("durable_agent", "register nodes of {region}")
async def register_nodes(
    connection: AsyncConnection,
    region: RegionId,
    nodes: Sequence[NodeSpec],
    *,
    epoch: int,
    lease_ttl_seconds: int,
    host: str = "agent",
    now: datetime | None = None,
) -> dict[NodeId, int]:
    """Begins a session for each node: what it is, and a lease at the region's epoch.

    A node whose lease another `host` keeps alive is refused: two agents would each run its work.

    An agent that comes back after a fence calls this only once it has stopped what moved away.
    """
    assert len(nodes) <= MAX_NODES_PER_CALL, f"at most {MAX_NODES_PER_CALL} nodes per call"
    assert 1 <= lease_ttl_seconds <= MAX_LEASE_SECONDS, f"a lease lasts 1 to {MAX_LEASE_SECONDS} s"
    known = await lock_region(connection, region)
    if known.epoch != epoch:
        raise RefusedError(
            RefusalCode.FENCED_AGENT,
            f"{region} is at epoch {known.epoch}, not {epoch}; "
            "stop what moved elsewhere, then register at the new epoch.",
        )
    at = await read_clock(connection, now)
    mine = {"region": region, "nodes": [str(node.id) for node in nodes], "host": host, "now": at}
    other = (await connection.execute(_HOSTED, mine)).one_or_none()
    if other is not None:
        raise RefusedError(
            RefusalCode.NODES_HOSTED,
            f"Node {other.node} of {region} is hosted by {other.host}, whose lease lasts until "
            f"{show_moment(other.expires_at)}. Stop that agent first and "
            "wait for the lease to end, or give this node another name.",
        )
    await write_nodes(connection, region, nodes, registers=True)
    lease = {
        **mine,
        "epoch": epoch,
        "expires_at": at + timedelta(seconds=lease_ttl_seconds),
    }
    begun = await connection.execute(_BEGIN_SESSIONS, lease)
    return {NodeId(row.node): row.session for row in begun}


@regional_transaction("durable_agent", "renew leases in {region}")
async def renew_leases(
    connection: AsyncConnection,
    region: RegionId,
    sessions: Mapping[NodeId, int],
    *,
    lease_ttl_seconds: int,
    now: datetime | None = None,
) -> frozenset[NodeId]:
    """Extends the leases of these sessions, and answers which nodes have been renewed.

    A node that is missing from the answer was replaced, fenced, or silent for too long: its agent
    stops what must not run without a lease, and registers again.
    """
    assert 1 <= lease_ttl_seconds <= MAX_LEASE_SECONDS, f"a lease lasts 1 to {MAX_LEASE_SECONDS} s"
    rows = json.dumps([{"node": node, "session": session} for node, session in sessions.items()])
    await connection.execute(_LOCK_LEASES, {"region": region, "nodes": list(map(str, sessions))})
    renewed = await connection.execute(
        _RENEW, {"region": region, "rows": rows, "now": now, "ttl": lease_ttl_seconds}
    )
    return frozenset(NodeId(row.node) for row in renewed)
