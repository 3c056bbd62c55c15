"""What a region requires of its nodes: what each must run, and what it must stop."""

from collections.abc import Sequence
from typing import Any

from pydantic import AwareDatetime, ValidationError
from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.model.ids import (
    DeviceId,
    Generation,
    NodeId,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
)
from durable.model.states import ObservedState
from durable.model.work.running import OnDisconnect
from durable.model.work.workload import WorkloadSpec
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
    bound_at: AwareDatetime
    devices: tuple[DeviceId, ...]
    # None when the region holds no description that this release can read.
    spec: WorkloadSpec | None
    stop_requested: bool = False
    stop_reason: str | None = None
    released: bool = False
    # What was last observed of it, by whichever agent: an end is final, and is not started again.
    observed: ObservedState | None = None

    @property
    def stops_when_cut_off(self) -> bool:
        return self.spec is not None and self.spec.run.on_disconnect is OnDisconnect.STOP

    @property
    def identity(self) -> tuple[object, ...]:
        """What no other assignment shares.

        A token alone may come again, in a database that was restored to an earlier time; the moment
        at which it was bound does not.
        """
        whose = (self.tenant, self.workload, self.generation, self.slot, self.attempt)
        return (self.region, self.token, self.node, *whose, self.bound_at)


# One statement, so that the version is that of every row. Without a limit: an agent that took a
# truncated list for the whole one would stop the rest, and a region's capacity bounds it. Thousands
# of replicas share few specs, so each spec travels once, with the first of its replicas.
_ASSIGNMENTS = """
    SELECT g.version, b.token, r.node, r.tenant, r.workload, r.generation, r.slot, r.attempt,
           b.bound_at, r.devices, b.stop_requested_at IS NOT NULL AS stop_requested, b.stop_reason,
           b.state = 'released' AS released, o.state AS observed,
           CASE WHEN row_number() OVER (
                    PARTITION BY r.tenant, r.workload, r.generation ORDER BY b.token) = 1
                THEN q.spec END AS spec
      FROM regional.regions AS g
      LEFT JOIN (regional.bindings AS b
                 JOIN regional.reservations AS r ON r.region = b.region AND r.token = b.token)
        ON b.region = g.region AND {which}
       AND (CAST(:nodes AS text[]) IS NULL OR r.node = ANY(:nodes))
      LEFT JOIN regional.observations AS o ON o.region = b.region AND o.token = b.token
      LEFT JOIN regional.requests AS q
        ON q.region = r.region AND q.tenant = r.tenant AND q.workload = r.workload
       AND q.generation = r.generation
     WHERE g.region = :region
     ORDER BY b.token
"""
_TO_RUN_OR_STOP = "(b.state = 'starting' OR b.state = 'bound' AND b.stop_requested_at IS NOT NULL)"
# Two statements, because they need two indexes: live claims by their nodes, bindings by version.
_ALL = text(_ASSIGNMENTS.format(which=f"r.freed_version IS NULL AND {_TO_RUN_OR_STOP}"))
_CHANGED = text(
    _ASSIGNMENTS.format(
        which=f"b.changed_version > :since AND ({_TO_RUN_OR_STOP} OR b.state = 'released')"
    )
)


@regional_transaction("durable_agent", "read the assignments of {region}", commits_each=True)
async def read_assignments(
    connection: AsyncConnection,
    region: RegionId,
    nodes: Sequence[NodeId] | None,
    *,
    since: int = 0,
) -> tuple[int, list[Assignment]]:
    """The version read, and what these nodes (None: all) must run or stop, changed after `since`.

    A read since some version also reports what was released after it; a full read leaves it out.
    """
    names = None if nodes is None else [str(node) for node in nodes]
    of = {"region": region, "nodes": names}
    if since > 0:
        rows = (await connection.execute(_CHANGED, {**of, "since": since})).all()
    else:
        rows = (await connection.execute(_ALL, of)).all()
    if not rows:
        raise unknown_region(region)
    specs: dict[tuple[str, str, int], WorkloadSpec | None] = {}
    found = [_assignment(region, row, specs) for row in rows if row.token is not None]
    return rows[0].version, found


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
        bound_at=row.bound_at,
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
        return WorkloadSpec.read(stored)
    except ValidationError:
        # Written by a later release: that must not keep the node from its other workloads.
        return None
