"""One row for each thing that `durable get` lists; programs get the same fields."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from durable.authority.census import RegionCensus, TenantCensus
from durable.authority.shares import ShareStatus, SlotStatus
from durable.authority.snapshot import NodeView, RegionSnapshot
from durable.authority.workloads import WorkloadRow
from durable.model.capacity import Grant
from durable.model.ids import NodeId, PoolId, RegionId, TenantId, ZoneId
from durable.model.records import Decision
from durable.model.resources import Resources
from durable.model.states import BindingState
from durable.model.value import Value
from durable.model.workload import WorkloadKind
from durable.scheduling.proposal import Proposal
from durable.signals.names import placement_id

_READY = (BindingState.READY, BindingState.SERVING)


class WorkloadListRow(Value):
    workload: str
    kind: WorkloadKind
    generation: int
    wanted: int
    bound: int
    ready: int
    serving: int
    waiting: int
    priority: int
    phase: str


class PlacementRow(Value):
    placement: str
    region: RegionId
    state: str
    placed: int
    serving: int
    waiting: int
    waits_for: str | None
    slots: tuple[SlotStatus, ...]


class NodeRow(Value):
    node: NodeId
    region: RegionId
    zone: ZoneId
    pool: PoolId
    capacity: str
    used: str
    state: str
    live: bool
    cordoned: str | None
    dedicated_to: str | None
    labels: Mapping[str, str]
    taints: tuple[str, ...]


class TenantRow(Value):
    tenant: TenantId
    hard: str
    protected: str
    granted: str
    used: str
    grants: tuple[Grant, ...]


class RegionRow(Value):
    region: RegionId
    state: str
    epoch: int
    version: int
    nodes: int
    live: int
    capacity: str
    used: str


class DecisionRow(Value):
    region: RegionId
    generation: int
    attempt: int
    decided_at: str
    policy_revision: int
    cache_version: int
    placed: int
    unplaced: int
    waits_for: str | None

    @classmethod
    def of(cls, decision: Decision) -> Self:
        proposal = Proposal.model_validate(decision.evidence["proposal"])
        return cls(
            region=decision.region,
            generation=decision.generation,
            attempt=decision.attempt,
            decided_at=decision.decided_at.isoformat(timespec="seconds"),
            policy_revision=decision.policy_revision,
            cache_version=decision.cache_version,
            placed=len(proposal.assignments),
            unplaced=len(proposal.unplaced),
            waits_for=None if proposal.pending is None else str(proposal.pending),
        )


def workload_row(one: WorkloadRow, shares: Sequence[ShareStatus]) -> WorkloadListRow:
    """Counts the present generation alone, by the authority's word."""
    mine = [share for share in shares if share.key == _key(one)]
    states = Counter(slot.state for share in mine for slot in share.slots)
    waiting = sum(share.request.waiting for share in mine if share.request is not None)
    serving = states[BindingState.SERVING]
    return WorkloadListRow(
        workload=f"{one.tenant}/{one.workload}",
        kind=one.spec.kind,
        generation=one.generation,
        wanted=one.spec.replicas,
        bound=states.total() - states[BindingState.FAILED] - states[BindingState.STOPPED],
        ready=sum(states[state] for state in _READY),
        serving=serving,
        waiting=waiting,
        priority=one.spec.priority,
        phase=_phase(one, serving, waiting),
    )


def _key(one: WorkloadRow) -> tuple[str, str, int]:
    return (str(one.tenant), str(one.workload), one.generation)


def _phase(one: WorkloadRow, serving: int, waiting: int) -> str:
    if one.deleted:
        complete = any(c.type == "Complete" and c.status for c in one.conditions)
        return "complete" if complete else "ended"
    if one.deleting:
        return "deleting"
    if one.spec.kind is WorkloadKind.SERVICE and serving >= one.spec.replicas:
        return "serving"
    return "waiting" if waiting else "progressing"


def placement_row(share: ShareStatus) -> PlacementRow:
    request = share.request
    return PlacementRow(
        placement=placement_id(share.tenant, share.workload, share.generation, share.region),
        region=share.region,
        state="ending" if request is None else request.state.value,
        placed=len(share.slots),
        serving=sum(slot.state is BindingState.SERVING for slot in share.slots),
        waiting=0 if request is None else request.waiting,
        waits_for=None if request is None else request.pending_reason,
        slots=share.slots,
    )


def node_row(snapshot: RegionSnapshot, node: NodeView) -> NodeRow:
    expires = node.lease_expires_at
    return NodeRow(
        node=NodeId(node.node),
        region=snapshot.region,
        zone=ZoneId(node.zone),
        pool=PoolId(node.pool),
        capacity=str(Resources.of(*node.capacity)),
        used=_amount(Resources.of(*node.used)),
        state=node.state,
        live=node.lease_epoch == snapshot.epoch
        and expires is not None
        and expires > snapshot.read_at,
        cordoned=node.cordon_reason,
        dedicated_to=node.dedicated_to,
        labels=node.labels,
        taints=tuple(f"{t['key']}={t['value']}:{t['effect']}" for t in node.taints),
    )


def tenant_row(one: TenantCensus) -> TenantRow:
    return TenantRow(
        tenant=one.quota.tenant,
        hard=str(one.quota.hard),
        protected=_amount(one.quota.protected),
        granted=_amount(one.quota.granted),
        used=_amount(one.used),
        grants=one.grants,
    )


def region_row(one: RegionCensus) -> RegionRow:
    return RegionRow(
        region=one.region.region,
        state=one.region.state.value,
        epoch=one.region.epoch,
        version=one.region.version,
        nodes=sum(pool.nodes for pool in one.pools),
        live=sum(pool.live for pool in one.pools),
        capacity=str(one.capacity),
        used=_amount(one.used),
    )


def _amount(amount: Resources) -> str:
    return "none" if amount.is_zero else str(amount)
