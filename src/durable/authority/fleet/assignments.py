"""What a region wants of its nodes: what each shall run, what it shall stop, and who they are."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.nodes import AGENT
from durable.authority.fleet.regions import unknown_region
from durable.model.ids import (
    DeviceId,
    Generation,
    NodeId,
    PoolId,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
    ZoneId,
)
from durable.model.labels import Taint
from durable.model.regions import NodeSpec
from durable.model.resources import Capacity
from durable.model.states import ObservedState
from durable.model.workload import WorkloadSpec
from durable.validation.value import Value


class Assignment(Value):
    """One binding as its node must treat it: run it, stop it, or forget it."""

    region: RegionId
    token: Token
    node: NodeId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: int
    devices: tuple[DeviceId, ...]
    # None when the region holds no description that this release can read.
    spec: WorkloadSpec | None
    stop_requested: bool = False
    stop_reason: str | None = None
    released: bool = False
    # What was last seen of it, by whatever agent: an end is final, and is not begun again.
    observed: ObservedState | None = None


# One statement, so that the version is the moment of every row. Without a limit: whoever took a cut
# list for the whole one would stop what was cut off; a region's capacity bounds it. Thousands of
# replicas share few descriptions, so each travels once, with the first of them.
_ASSIGNMENTS = text("""
    SELECT g.version, b.token, r.node, r.tenant, r.workload, r.generation, r.slot, r.attempt,
           r.devices, b.stop_requested_at IS NOT NULL AS stop_requested, b.stop_reason,
           b.state = 'released' AS released, o.state AS observed,
           CASE WHEN row_number() OVER (
                    PARTITION BY r.tenant, r.workload, r.generation ORDER BY b.token) = 1
                THEN q.spec END AS spec
      FROM regional.regions AS g
      LEFT JOIN (regional.bindings AS b
                 JOIN regional.reservations AS r ON r.region = b.region AND r.token = b.token)
        ON b.region = g.region AND b.changed_version > :since
       AND (b.state = 'starting'
            OR b.state = 'bound' AND b.stop_requested_at IS NOT NULL
            OR b.state = 'released' AND :since > 0)
       AND (CAST(:nodes AS text[]) IS NULL OR r.node = ANY(:nodes))
      LEFT JOIN regional.observations AS o ON o.region = b.region AND o.token = b.token
      LEFT JOIN regional.requests AS q
        ON q.region = r.region AND q.tenant = r.tenant AND q.workload = r.workload
       AND q.generation = r.generation
     WHERE g.region = :region
     ORDER BY b.token
""")

_NODES = text("""
    SELECT g.version, n.node, n.zone, n.pool, n.capacity_cpu_millis, n.capacity_memory_mib,
           n.capacity_gpus, n.labels, n.taints, n.dedicated_to, n.state = 'removed' AS removed,
           array(SELECT d.device FROM regional.devices AS d
                  WHERE d.region = n.region AND d.node = n.node ORDER BY d.device) AS devices
      FROM regional.regions AS g
      LEFT JOIN regional.nodes AS n ON n.region = g.region AND n.changed_version > :since
     WHERE g.region = :region ORDER BY n.node
""")


async def read_assignments(
    databases: Databases, region: RegionId, nodes: Sequence[NodeId] | None, *, since: int = 0
) -> tuple[int, list[Assignment]]:
    """The version read, and what these nodes (None: all) must run or stop, changed after `since`.

    A read since some version also tells what was released after it; a full read leaves it out.
    """
    named = None if nodes is None else [str(node) for node in nodes]

    async def work(connection: AsyncConnection) -> tuple[int, list[Assignment]]:
        of = {"region": region, "nodes": named, "since": since}
        rows = (await connection.execute(_ASSIGNMENTS, of)).all()
        if not rows:
            raise unknown_region(region)
        specs: dict[tuple[str, str, int], WorkloadSpec | None] = {}
        found = [_assignment(region, row, specs) for row in rows if row.token is not None]
        return rows[0].version, found

    engine = databases.at_region(region, AGENT)
    return await transact(engine, work, doing=f"read the assignments of {region}")


def _assignment(
    region: RegionId, row: Any, specs: dict[tuple[str, str, int], WorkloadSpec | None]
) -> Assignment:
    key = (row.tenant, row.workload, row.generation)
    # The rows come in the order of their tokens, so the one that carries the spec is the first.
    if key not in specs:
        specs[key] = _spec(row.spec)
    return Assignment(
        region=region,
        token=row.token,
        node=NodeId(row.node),
        tenant=TenantId(row.tenant),
        workload=WorkloadName(row.workload),
        generation=row.generation,
        slot=row.slot,
        attempt=row.attempt,
        devices=tuple(DeviceId(device) for device in row.devices),
        spec=specs[key],
        stop_requested=row.stop_requested,
        stop_reason=row.stop_reason,
        released=row.released,
        observed=None if row.observed is None else ObservedState(row.observed),
    )


def _spec(stored: Any) -> WorkloadSpec | None:
    if not stored:
        return None
    try:
        return WorkloadSpec.model_validate(stored)
    except ValidationError:
        # Written by a later release: one workload's trouble, not that of its whole node.
        return None


async def read_declared_nodes(
    databases: Databases, region: RegionId, *, since: int = 0
) -> tuple[int, list[NodeSpec], list[NodeId]]:
    """The version read, the nodes that changed after `since`, and those removed for good."""

    async def work(connection: AsyncConnection) -> tuple[int, list[NodeSpec], list[NodeId]]:
        rows = (await connection.execute(_NODES, {"region": region, "since": since})).all()
        if not rows:
            raise unknown_region(region)
        nodes = [row for row in rows if row.node is not None]
        standing = [_node(region, row) for row in nodes if not row.removed]
        return rows[0].version, standing, [NodeId(row.node) for row in nodes if row.removed]

    engine = databases.at_region(region, AGENT)
    return await transact(engine, work, doing=f"read the nodes of {region}")


def _node(region: RegionId, row: Any) -> NodeSpec:
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
