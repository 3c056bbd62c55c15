"""Single objects as they are now: claims, bindings, nodes, and the events of the audit."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.authority.quota.quotas import amount_of
from durable.model.capacity import Device, Node
from durable.model.claims import Binding, Reservation
from durable.model.ids import NodeId, RegionId
from durable.model.labels import Taint
from durable.model.records import AuditEvent
from durable.model.refusal import RefusalCode, RefusedError

MOST = 10_000

_RESERVATIONS = text("""
    SELECT * FROM regional.reservations
     WHERE region = :region AND (freed_version IS NULL OR NOT :standing) ORDER BY token LIMIT :most
""")

_BINDINGS = text("""
    SELECT * FROM regional.binding_status(coalesce(CAST(:now AS timestamptz), clock_timestamp()))
     WHERE region = :region AND (state <> 'released' OR NOT :active) ORDER BY token LIMIT :most
""")

_NODE = text("""
    SELECT n.*, l.epoch AS lease_epoch, l.expires_at AS lease_expires_at,
           (SELECT coalesce(jsonb_agg(jsonb_build_object(
                       'device', d.device, 'healthy', d.healthy, 'holder', h.token)
                       ORDER BY d.device), '[]')
              FROM regional.devices AS d
              LEFT JOIN regional.device_holds AS h USING (region, node, device)
             WHERE d.region = n.region AND d.node = n.node) AS devices
      FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
     WHERE n.region = :region AND n.node = :node
""")

_EVENTS = text("""
    SELECT chain, sequence, at, actor, database_role, action, object, before, after,
           encode(hash, 'hex') AS hash
      FROM audit.events
     WHERE CAST(:chain AS text) IS NULL OR chain = :chain
     ORDER BY at DESC, chain, sequence DESC LIMIT :last
""")

_CLAIM_FIELDS = (
    "region", "token", "tenant", "workload", "generation", "slot", "attempt", "node", "budget",
    "policy_revision", "state", "reserved_at", "expires_at", "ended_at", "created_version",
    "freed_version", "actor", "evidence",
)  # fmt: skip


async def read_reservations(
    databases: Databases, region: RegionId, *, standing: bool = True
) -> list[Reservation]:
    """The reservations of a region whose claims stand; or all of them."""

    async def work(connection: AsyncConnection) -> list[Reservation]:
        of = {"region": region, "standing": standing, "most": MOST}
        rows = (await connection.execute(_RESERVATIONS, of)).mappings()
        return [_reservation(row) for row in rows]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the reservations of {region}")


def _reservation(row: Any) -> Reservation:
    fields = {name: row[name] for name in _CLAIM_FIELDS}
    return Reservation(**fields, resources=amount_of(row), devices=tuple(row["devices"]))


async def read_bindings(
    databases: Databases, region: RegionId, *, active: bool = True, now: datetime | None = None
) -> list[Binding]:
    """The bindings of a region with what was last observed of them."""

    async def work(connection: AsyncConnection) -> list[Binding]:
        of = {"region": region, "active": active, "most": MOST, "now": now}
        return [
            Binding(**dict(row)) for row in (await connection.execute(_BINDINGS, of)).mappings()
        ]

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the bindings of {region}")


async def read_node(databases: Databases, region: RegionId, node: NodeId) -> Node:
    async def work(connection: AsyncConnection) -> Node:
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

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read node {node}")


async def read_events(
    databases: Databases, *, chain: str | None = None, last: int = 50
) -> Sequence[AuditEvent]:
    """The newest events of the audit, of every database or of one chain, oldest first."""

    async def work(connection: AsyncConnection) -> list[AuditEvent]:
        rows = (await connection.execute(_EVENTS, {"chain": chain, "last": last})).mappings()
        return [AuditEvent(**dict(row)) for row in rows]

    events = [
        event
        for url in databases.urls
        for event in await transact(
            databases.at(url, "durable_reader"), work, doing="read the audit"
        )
    ]
    return sorted(events, key=lambda event: (event.at, event.chain, event.sequence))[-last:]
