"""A region as it was at one version: for caches that follow it, and for replay long after."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.regions import unknown_region
from durable.model.amounts import DIMENSIONS, Amounts
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node; leases are of the present and absent when an old version is rebuilt."""

    node: str
    zone: str
    pool: str
    capacity: Amounts
    used: Amounts
    labels: dict[str, str]
    taints: list[dict[str, str]]
    dedicated_to: str | None
    state: str
    cordon_reason: str | None
    lease_epoch: int | None
    lease_expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class GrantView:
    tenant: str
    granted: Amounts
    used: Amounts


@dataclass(frozen=True, slots=True)
class RegionSnapshot:
    region: RegionId
    epoch: int
    version: int
    state: RegionState
    read_at: datetime
    nodes: tuple[NodeView, ...]
    grants: tuple[GrantView, ...]
    # What ordinary work may still take: what is kept for recovery until now is not in it.
    room: Amounts
    policy_revision: int | None


# One statement, so that every part is of the same moment without a transaction's snapshot.
_SNAPSHOT = """
    SELECT r.epoch, r.version, r.state, clock_timestamp() AS read_at,
           (SELECT coalesce(jsonb_agg(to_jsonb(n) || jsonb_build_object(
                       'lease_epoch', l.epoch, 'lease_expires_at', l.expires_at)
                       ORDER BY n.node), '[]')
              FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
             WHERE n.region = r.region AND {which}) AS nodes,
           (SELECT coalesce(jsonb_agg(to_jsonb(g) ORDER BY g.tenant), '[]')
              FROM regional.grants AS g WHERE g.region = r.region) AS grants,
           (SELECT revision FROM regional.policy_states AS p
             WHERE p.region = r.region AND p.state = 'active') AS policy_revision,
           {room}
      FROM regional.regions AS r WHERE r.region = :region
"""

# The rule of Ledger.ordinary_room: a budget past its expiry keeps nothing free.
ROOM = ", ".join(
    f"""r.capacity_{d} - r.used_{d} - (
           SELECT coalesce(sum(b.{d} - b.used_{d}), 0)::bigint FROM regional.recovery_budgets AS b
            WHERE b.region = r.region AND b.expires_at > clock_timestamp()) AS room_{d}"""
    for d in DIMENSIONS
)

_WHOLE = text(_SNAPSHOT.format(which="n.state <> 'removed'", room=ROOM))

# Removed nodes too: whoever follows has to forget them.
_CHANGES = text(
    _SNAPSHOT.format(
        which="""n.node IN (
                   SELECT node FROM regional.nodes
                    WHERE region = :region AND changed_version > :since
                    UNION
                   SELECT node FROM regional.reservations
                    WHERE region = :region AND changed_version > :since)""",
        room=ROOM,
    )
)

# What a node held at a version is what was claimed there by then and not yet freed.
_NODES_AT = text("""
    WITH claimed AS (
        SELECT node, sum(cpu_millis)::bigint AS used_cpu_millis,
               sum(memory_mib)::bigint AS used_memory_mib, sum(gpus)::bigint AS used_gpus
          FROM regional.reservations
         WHERE region = :region AND created_version <= :version
           AND (freed_version IS NULL OR freed_version > :version)
         GROUP BY node
    ), looked AS (
        SELECT DISTINCT ON (node) node, attributes FROM regional.node_history
         WHERE region = :region AND version <= :version
         ORDER BY node, version DESC
    )
    SELECT attributes || jsonb_build_object(
               'node', node, 'lease_epoch', NULL, 'lease_expires_at', NULL,
               'used_cpu_millis', coalesce(used_cpu_millis, 0),
               'used_memory_mib', coalesce(used_memory_mib, 0),
               'used_gpus', coalesce(used_gpus, 0)) AS node
      FROM looked LEFT JOIN claimed USING (node)
     WHERE attributes ->> 'state' <> 'removed' ORDER BY looked.node
""")


_GRANTS_AT = text("""
    SELECT tenant, granted_cpu_millis, granted_memory_mib, granted_gpus,
           coalesce(used_cpu_millis, 0) AS used_cpu_millis,
           coalesce(used_memory_mib, 0) AS used_memory_mib, coalesce(used_gpus, 0) AS used_gpus
      FROM (SELECT tenant, sum(cpu_millis)::bigint AS granted_cpu_millis,
                   sum(memory_mib)::bigint AS granted_memory_mib,
                   sum(gpus)::bigint AS granted_gpus
              FROM regional.grant_changes WHERE region = :region AND version <= :version
             GROUP BY tenant) AS given
      LEFT JOIN (SELECT tenant, sum(cpu_millis)::bigint AS used_cpu_millis,
                        sum(memory_mib)::bigint AS used_memory_mib,
                        sum(gpus)::bigint AS used_gpus
                   FROM regional.reservations
                  WHERE region = :region AND created_version <= :version
                    AND (freed_version IS NULL OR freed_version > :version)
                  GROUP BY tenant) AS spent USING (tenant)
     ORDER BY tenant
""")

_VERSION = text("SELECT version FROM regional.regions WHERE region = :region")


async def read_snapshot(databases: Databases, region: RegionId) -> RegionSnapshot:
    """The region now."""
    return await _read(databases, region, None)


async def read_changes(databases: Databases, region: RegionId, since: int) -> RegionSnapshot:
    """The region now, with only those nodes that changed or were claimed after a version.

    Laid over a snapshot of that version it gives a snapshot of this one, but for leases, which
    have no version.
    """
    assert since >= 0, "a version is never negative"
    return await _read(databases, region, since)


async def _read(databases: Databases, region: RegionId, since: int | None) -> RegionSnapshot:
    statement = _WHOLE if since is None else _CHANGES

    async def work(connection: AsyncConnection) -> RegionSnapshot:
        row = (
            await connection.execute(statement, {"region": region, "since": since})
        ).one_or_none()
        if row is None:
            raise unknown_region(region)
        return RegionSnapshot(
            region=region,
            epoch=row.epoch,
            version=row.version,
            state=RegionState(row.state),
            read_at=row.read_at,
            nodes=tuple(node_of(entry) for entry in row.nodes),
            grants=tuple(
                GrantView(entry["tenant"], _amounts(entry, "granted_"), _amounts(entry, "used_"))
                for entry in row.grants
            ),
            room=(row.room_cpu_millis, row.room_memory_mib, row.room_gpus),
            policy_revision=row.policy_revision,
        )

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read a snapshot of {region}")


async def read_nodes_at(
    databases: Databases, region: RegionId, version: int
) -> tuple[NodeView, ...]:
    """The nodes as they were when the region had this version."""

    async def work(connection: AsyncConnection) -> tuple[NodeView, ...]:
        await _refuse_unknown_version(connection, region, version)
        rows = await connection.execute(_NODES_AT, {"region": region, "version": version})
        return tuple(node_of(row.node) for row in rows)

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"rebuild {region} at version {version}")


async def read_grants_at(
    databases: Databases, region: RegionId, version: int
) -> tuple[GrantView, ...]:
    """The grants as they were when the region had this version, and what was in use of them."""

    async def work(connection: AsyncConnection) -> tuple[GrantView, ...]:
        await _refuse_unknown_version(connection, region, version)
        of = {"region": region, "version": version}
        rows = (await connection.execute(_GRANTS_AT, of)).mappings()
        return tuple(
            GrantView(row["tenant"], _amounts(row, "granted_"), _amounts(row, "used_"))
            for row in rows
        )

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"rebuild {region} at version {version}")


async def _refuse_unknown_version(
    connection: AsyncConnection, region: RegionId, version: int
) -> None:
    newest = (await connection.execute(_VERSION, {"region": region})).scalar_one_or_none()
    if newest is None:
        raise unknown_region(region)
    if not 0 <= version <= newest:
        raise RefusedError(
            RefusalCode.UNKNOWN_VERSION,
            f"{region} has versions 0 to {newest}, not {version}; name one of those.",
        )


def _amounts(entry: Any, prefix: str) -> Amounts:
    return (
        entry[f"{prefix}cpu_millis"],
        entry[f"{prefix}memory_mib"],
        entry[f"{prefix}gpus"],
    )


def node_of(entry: dict[str, Any]) -> NodeView:
    expires_at = entry["lease_expires_at"]
    return NodeView(
        node=entry["node"],
        zone=entry["zone"],
        pool=entry["pool"],
        capacity=_amounts(entry, "capacity_"),
        used=_amounts(entry, "used_"),
        labels=entry["labels"],
        taints=entry["taints"],
        dedicated_to=entry["dedicated_to"],
        state=entry["state"],
        cordon_reason=entry["cordon_reason"],
        lease_epoch=entry["lease_epoch"],
        lease_expires_at=None if expires_at is None else datetime.fromisoformat(expires_at),
    )
