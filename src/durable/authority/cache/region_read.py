"""Reads of a region at one version: all of it, only what changed, or all of it in chunks."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import TextClause, text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import read_region, unknown_region
from durable.model.ids import RegionId
from durable.model.overrides.in_force import RegionalOverride
from durable.model.resources import DIMENSIONS, Amounts, minus
from durable.model.states import NodeState, RegionState
from durable.scheduling.snapshot.region import EmergencyDraw, NodeFacts

NODES_PER_CHUNK = 1_000

# By tenant: what of its grant in a region is for work, and what runs on it.
Grants = dict[str, tuple[Amounts, Amounts]]


@dataclass(frozen=True, slots=True)
class RegionRead:
    """What one read found. `CachedRegion` merges it into scheduling's snapshot, which is arrays."""

    region: RegionId
    epoch: int
    version: int
    state: RegionState
    # Seconds since the epoch, by the database's clock.
    read_at: float
    nodes: tuple[NodeFacts, ...]
    grants: Grants
    # What ordinary work may still take; what is kept for recovery is not in it.
    room: Amounts
    policy_revision: int | None
    # Those that have not been ended; whether one is in force, only the clock can say.
    overrides: tuple[RegionalOverride, ...] = ()
    # Those that were in force when this was read.
    draws: tuple[EmergencyDraw, ...] = ()


# One statement, so that every part is of the same moment without a transaction's snapshot.
_READ = """
    SELECT r.epoch, r.version, r.state, clock_timestamp() AS read_at,
           (SELECT coalesce(jsonb_agg(to_jsonb(n) || jsonb_build_object(
                       'lease_epoch', l.epoch, 'lease_expires_at', l.expires_at,
                       'unhealthy_gpus', {unhealthy}) ORDER BY n.node), '[]')
              FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
             WHERE n.region = r.region AND {which}) AS nodes,
           (SELECT coalesce(jsonb_agg(to_jsonb(g) ORDER BY g.tenant), '[]')
              FROM regional.free_grants(statement_timestamp()) AS g
             WHERE g.region = r.region) AS grants,
           (SELECT revision FROM regional.policy_states AS p
             WHERE p.region = r.region AND p.state IN ('canary', 'active')
             ORDER BY p.state = 'canary' DESC LIMIT 1) AS policy_revision,
           (SELECT coalesce(jsonb_agg(to_jsonb(o) ORDER BY o.override), '[]')
              FROM regional.overrides AS o
             WHERE o.region = r.region AND o.ended_at IS NULL) AS overrides,
           {draws} AS draws,
           {room}
      FROM regional.regions AS r WHERE r.region = :region
"""

# Those that are in force; what runs on others is in what is left of the grants.
DRAWS = """(SELECT coalesce(jsonb_agg(to_jsonb(e) ORDER BY e.override), '[]')
              FROM regional.emergency_draws AS e
             WHERE e.region = r.region AND NOT e.has_ended
               AND e.expires_at > statement_timestamp())"""

# The rule of Ledger.ordinary_room: what is held on silent nodes takes nothing from those that live,
# and a budget past its expiry keeps nothing free.
ROOM = ", ".join(
    f"""r.capacity_{d} - r.used_{d} + (
           SELECT coalesce(sum(n.used_{d}), 0)::bigint FROM regional.nodes AS n
            WHERE n.region = r.region AND n.state IN ('unknown', 'lost')) - (
           SELECT coalesce(sum(b.{d} - b.used_{d}), 0)::bigint FROM regional.recovery_budgets AS b
            WHERE b.region = r.region AND b.expires_at > clock_timestamp()) AS room_{d}"""
    for d in DIMENSIONS
)

# A held one is in use already; once it is free, it is not to be had.
_UNHEALTHY = """(SELECT count(*) FROM unnest(n.unhealthy_devices) AS device
                   WHERE NOT EXISTS (SELECT FROM regional.device_holds AS h
                                      WHERE h.region = n.region AND h.node = n.node
                                        AND h.device = device))"""

_WHOLE = text(
    _READ.format(which="n.state <> 'removed'", room=ROOM, draws=DRAWS, unhealthy=_UNHEALTHY)
)

# Removed nodes too: the cache has to forget them.
_CHANGES = text(
    _READ.format(
        which="""n.node IN (
                   SELECT node FROM regional.nodes
                    WHERE region = :region AND changed_version > :since
                    UNION
                   SELECT node FROM regional.reservations
                    WHERE region = :region
                      AND coalesce(freed_version, created_version) > :since)""",
        room=ROOM,
        draws=DRAWS,
        unhealthy=_UNHEALTHY,
    )
)

_CHUNK = text(f"""
    SELECT to_jsonb(n) || jsonb_build_object(
               'lease_epoch', l.epoch, 'lease_expires_at', l.expires_at,
               'unhealthy_gpus', {_UNHEALTHY}) AS node
      FROM (SELECT * FROM regional.nodes
             WHERE region = :region AND node > :after ORDER BY node LIMIT :most) AS n
      LEFT JOIN regional.node_leases AS l USING (region, node)
     ORDER BY n.node
""")


@regional_transaction("durable_reader", "read {region}")
async def read_whole(connection: AsyncConnection, region: RegionId) -> RegionRead:
    """The region now."""
    return await _read(connection, region, _WHOLE, {})


@regional_transaction("durable_reader", "read the changes of {region}")
async def read_changes(connection: AsyncConnection, region: RegionId, since: int) -> RegionRead:
    """The region now, with only those nodes that changed or were claimed after a version.

    Merged into a read of that version it gives a read of this one, but for leases, which have no
    version.
    """
    assert since >= 0, "a version is never negative"
    return await _read(connection, region, _CHANGES, {"since": since})


async def _read(
    connection: AsyncConnection, region: RegionId, statement: TextClause, values: dict[str, int]
) -> RegionRead:
    row = (await connection.execute(statement, {"region": region, **values})).one_or_none()
    if row is None:
        raise unknown_region(region)
    return RegionRead(
        region=region,
        epoch=row.epoch,
        version=row.version,
        state=RegionState(row.state),
        read_at=row.read_at.timestamp(),
        nodes=tuple(node_of(entry) for entry in row.nodes),
        grants=dict(grant_of(entry) for entry in row.grants),
        room=(row.room_cpu_millis, row.room_memory_mib, row.room_gpus),
        policy_revision=row.policy_revision,
        overrides=tuple(RegionalOverride.read(entry) for entry in row.overrides),
        draws=tuple(draw_of(entry) for entry in row.draws),
    )


async def read_in_chunks(databases: Databases, region: RegionId) -> RegionRead:
    """The region as it is when the last chunk is read.

    The event loop stays free while tens of thousands of nodes are read. The chunks are of different
    versions; what changed since before the first of them is read last and merged, so that the sum
    is the region at one version after all.
    """
    since = (await read_region(databases, region)).version
    nodes: dict[str, NodeFacts] = {}
    after = ""
    while True:
        chunk = await _read_chunk(databases, region, after)
        nodes.update((facts.node, facts) for facts in chunk)
        if len(chunk) < NODES_PER_CHUNK:
            break
        after = chunk[-1].node
    changes = await read_changes(databases, region, since)
    nodes.update((facts.node, facts) for facts in changes.nodes)
    present = tuple(facts for facts in nodes.values() if facts.state != NodeState.REMOVED)
    return replace(changes, nodes=present)


@regional_transaction("durable_reader", "read the nodes of {region}")
async def _read_chunk(connection: AsyncConnection, region: RegionId, after: str) -> list[NodeFacts]:
    chunk = {"region": region, "after": after, "most": NODES_PER_CHUNK}
    return [node_of(row.node) for row in await connection.execute(_CHUNK, chunk)]


def node_of(entry: dict[str, Any]) -> NodeFacts:
    """A node from its row as JSON, with its lease."""
    expires_at = entry["lease_expires_at"]
    return NodeFacts(
        node=entry["node"],
        zone=entry["zone"],
        pool=entry["pool"],
        capacity=_amounts(entry, "capacity_"),
        used=_amounts(entry, "used_"),
        unhealthy_gpus=entry["unhealthy_gpus"],
        labels=entry["labels"],
        taints=entry["taints"],
        dedicated_to=entry["dedicated_to"],
        state=entry["state"],
        cordon_reason=entry["cordon_reason"],
        cordoned_by=entry["cordoned_by"],
        lease_epoch=entry["lease_epoch"],
        lease_expires_at=(
            None if expires_at is None else datetime.fromisoformat(expires_at).timestamp()
        ),
    )


def grant_of(entry: Any) -> tuple[str, tuple[Amounts, Amounts]]:
    """A tenant with what its grant has for work, and what runs on it, from `free_grants`.

    What the region owes to a lowered quota is not there, and what runs on an emergency quota that
    is over runs on the grant.
    """
    granted = minus(_amounts(entry, "granted_"), _amounts(entry, "owed_"))
    return entry["tenant"], (granted, minus(granted, _amounts(entry, "free_")))


def draw_of(entry: dict[str, Any]) -> EmergencyDraw:
    """An emergency draw in force, from its row as JSON."""
    return EmergencyDraw(
        tenant=entry["tenant"],
        amount=_amounts(entry, ""),
        used=_amounts(entry, "used_"),
        expires_at=datetime.fromisoformat(entry["expires_at"]).timestamp(),
    )


def _amounts(entry: Any, prefix: str) -> Amounts:
    return (
        entry[f"{prefix}cpu_millis"],
        entry[f"{prefix}memory_mib"],
        entry[f"{prefix}gpus"],
    )
