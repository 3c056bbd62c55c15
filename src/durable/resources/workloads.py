"""Workloads, placements, decisions, generations and the queue, as lists show them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from pydantic import AwareDatetime

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.queue.decisions import read_decisions
from durable.authority.queue.requests import read_queue
from durable.authority.quota.quotas import read_quota
from durable.authority.reads.shares import ShareKey, ShareStatus, read_shares
from durable.authority.reads.wanted import read_wanted
from durable.authority.workloads.generations import list_generations
from durable.authority.workloads.rows import count_ended, list_workloads
from durable.explain.explain import require_workload
from durable.model.ids import RegionId, TenantId
from durable.model.placement.claims import ObservedSlot
from durable.model.placement.pending import Pending
from durable.model.placement.records import Decision
from durable.model.placement.request import QueuedRequest
from durable.model.states import BindingState
from durable.model.work.phases import Counts, WorkloadPhase, workload_phase
from durable.model.work.rollout import GenerationRecord
from durable.model.work.share import completed_in
from durable.model.work.workload import AdmittedWorkload, WorkloadKind
from durable.resources.resource import Filters, Rows, Sources, WorkflowTrouble
from durable.scheduling.request import Proposal
from durable.signals.names import placement_id, region_of, workload_id
from durable.validation.value import Value

STUCK = "see runbooks/workflow-stuck.md"

# ── workloads ───────────────────────────────────────────────────────────────────────────────────


class WorkloadRow(Value):
    """A workload with what there is of all its generations, as the authority knows it."""

    workload: str
    phase: WorkloadPhase
    wanted: int
    bound: int
    ready: int
    serving: int
    # How many serve the wanted generation, while others still have to be replaced.
    updated: int | None
    waiting: int
    # Of a job.
    completed: int | None
    failures: int | None
    kind: WorkloadKind
    generation: int
    priority: int
    # Until when a job is to be done, and how long that is from now; negative once it is late.
    deadline: AwareDatetime | None
    seconds_left: int | None
    ended_at: AwareDatetime | None
    # What keeps it from being managed; None of one that has ended.
    problem: str | None = None


async def read_workloads(sources: Sources, filters: Filters) -> Rows[WorkloadRow]:
    databases, tenant = sources.databases, filters.tenant
    live = await list_workloads(databases, tenant)
    ended = await count_ended(databases, tenant)
    if not live and not ended:
        await _refuse_unknown(databases, tenant)
    # A job's completed replicas count even in a region whose share has ended.
    jobs = [key_of(one) for one in live if one.spec.kind is WorkloadKind.JOB]
    answers = await ask_regions(
        await sources.select_regions(),
        lambda region: read_shares(databases, region, tenant, also=jobs),
    )
    shares = [share for found in answers.by_region.values() for share in found]
    shown = live
    if filters.ended:
        shown = [*live, *await list_workloads(databases, tenant, deleted=True)]
    wanted = await read_wanted(databases, tenant)
    misplaced = {(one.tenant, one.workload): one.misplaced for one in wanted}
    trouble = await sources.workflows(tenant)
    rows = [
        workload_row(
            one,
            shares,
            misplaced=misplaced.get((one.tenant, one.workload), 0),
            problem=_workload_problem(one, trouble),
        )
        for one in shown
    ]
    return Rows(rows, answers.unreachable, 0 if filters.ended else ended)


async def _refuse_unknown(databases: Databases, tenant: TenantId | None) -> None:
    """Tells a tenant without workloads from a tenant that does not exist."""
    if tenant is not None:
        await read_quota(databases, tenant)


def workload_row(
    one: AdmittedWorkload,
    shares: Sequence[ShareStatus],
    *,
    misplaced: int = 0,
    problem: str | None = None,
    now: datetime | None = None,
) -> WorkloadRow:
    """Slots that still have to move or end are what the workload itself waits for."""
    mine = [share for share in shares if share.key == key_of(one)]
    every = [share for share in shares if share.key[:2] == key_of(one)[:2]]
    is_service = one.spec.kind is WorkloadKind.SERVICE
    counts = Counts.of(_states(every if is_service else mine))
    is_rolling = one.rollout is not None or any(share.report().to_replace for share in mine)
    waiting = sum(share.request.waiting for share in mine if share.request is not None)
    completed = _count(one, mine, "completed")
    return WorkloadRow(
        workload=f"{one.tenant}/{one.workload}",
        kind=one.spec.kind,
        generation=one.generation,
        wanted=one.spec.replicas,
        bound=counts.bound,
        ready=counts.ready,
        serving=counts.serving,
        updated=Counts.of(_states(mine)).serving if is_rolling else None,
        waiting=waiting,
        completed=completed,
        failures=_count(one, mine, "failures"),
        deadline=one.deadline,
        seconds_left=_seconds_left(one, now or datetime.now(UTC)),
        priority=one.spec.priority,
        phase=_phase(one, mine, counts, completed or 0, misplaced, is_rolling=is_rolling),
        ended_at=one.deleted_at,
        problem=problem,
    )


def _states(shares: Iterable[ShareStatus]) -> Counter[BindingState]:
    return Counter(slot.state for share in shares for slot in share.slots if slot.state)


def _count(one: AdmittedWorkload, shares: Sequence[ShareStatus], what: str) -> int | None:
    """Of a job's replicas; of one that has ended, as it was then."""
    if one.deleted:
        return one.replicas_by_state.get(what)
    if one.spec.kind is WorkloadKind.SERVICE:
        return None
    requests = [share.request for share in shares if share.request is not None]
    if what == "completed":
        return len(completed_in(requests))
    return sum(getattr(request, what) for request in requests)


def _seconds_left(one: AdmittedWorkload, now: datetime) -> int | None:
    if one.deadline is None or one.deleted:
        return None
    return int((one.deadline - now).total_seconds())


def key_of(one: AdmittedWorkload) -> ShareKey:
    return (str(one.tenant), str(one.workload), one.generation)


def _phase(
    one: AdmittedWorkload,
    shares: Sequence[ShareStatus],
    counts: Counts,
    completed: int,
    misplaced: int,
    *,
    is_rolling: bool,
) -> WorkloadPhase:
    """The same word as the workflow's own status."""
    if one.deleted:
        return WorkloadPhase(one.end)
    requests = {share.region: share.request for share in shares if share.request is not None}
    is_job = one.spec.kind is WorkloadKind.JOB
    reports = {share.region: share.report() for share in shares}
    return workload_phase(
        kind=one.spec.kind,
        wanted=one.spec.replicas,
        serving=counts.serving,
        completed=completed,
        is_waiting=misplaced > 0 or any(found.pending for found in requests.values()),
        is_rolling=is_rolling,
        is_paused=one.rollout is not None and one.rollout.pause is not None,
        has_ended=is_job
        and all(
            region in reports and reports[region].covers(slots)
            for region, slots in one.share.items()
            if slots
        ),
        is_deleting=one.deleting,
    )


def _workload_problem(one: AdmittedWorkload, trouble: WorkflowTrouble | None) -> str | None:
    """Of the workload itself, else of its placements."""
    if trouble is None or one.deleted:
        return None
    if f"{one.tenant}/{one.workload}" in trouble.unmanaged:
        return "no workflow manages it: the global worker starts one, or run `durable reconcile`"
    if cause := trouble.failing.get(workload_id(one.tenant, one.workload)):
        return f"its workflow fails its tasks ({cause}): {STUCK}"
    placements = {
        region: placement_id(one.tenant, one.workload, one.generation, region)
        for region in sorted(one.share)
    }
    problems = [
        f"{region}: {problem}"
        for region, id in placements.items()
        if (problem := _placement_problem(id, trouble))
    ]
    return "; ".join(problems) or None


# ── placements ──────────────────────────────────────────────────────────────────────────────────


class PlacementRow(Value):
    """One region's share of a workload, and what it waits for."""

    placement: str
    region: RegionId
    state: str
    placed: int = 0
    serving: int = 0
    waiting: int = 0
    pending: Pending | None = None
    slots: tuple[ObservedSlot, ...] = ()
    problem: str | None = None


async def read_placements(sources: Sources, filters: Filters) -> Rows[PlacementRow]:
    databases, tenant = sources.databases, filters.tenant
    answers = await ask_regions(
        await sources.select_regions(filters.region),
        lambda region: read_shares(databases, region, tenant),
    )
    trouble = await sources.workflows(tenant)
    rows = [
        _placement_row(share, trouble) for found in answers.by_region.values() for share in found
    ]
    recorded = {row.placement for row in rows}
    # Shares that are wanted, and of which their regions know nothing yet.
    rows += [
        PlacementRow(
            placement=id,
            region=region_of(id),
            state="unrecorded",
            problem=_placement_problem(id, trouble),
        )
        for id in (() if trouble is None else trouble.troubled_placements)
        if id not in recorded and filters.region in (None, region_of(id))
    ]
    if not rows:
        await _refuse_unknown(databases, tenant)
    return Rows(rows, answers.unreachable)


def _placement_row(share: ShareStatus, trouble: WorkflowTrouble | None) -> PlacementRow:
    request = share.request
    id = placement_id(share.tenant, share.workload, share.generation, share.region)
    return PlacementRow(
        placement=id,
        region=share.region,
        state="ending" if request is None else request.state.value,
        placed=len(share.slots),
        serving=Counts.of(_states([share])).serving,
        waiting=0 if request is None else request.waiting,
        pending=None if request is None else request.pending,
        slots=share.slots,
        problem=_placement_problem(id, trouble),
    )


def _placement_problem(id: str, trouble: WorkflowTrouble | None) -> str | None:
    if trouble is None:
        return None
    if cause := trouble.failing.get(id):
        return f"its workflow fails its tasks ({cause}): {STUCK}"
    if id in trouble.missing:
        return "no placement runs: the global worker starts one, or run `durable reconcile`"
    if id in trouble.opening:
        return "no placement runs yet: its workload is about to start one"
    return None


# ── decisions, generations, the queue ───────────────────────────────────────────────────────────


class DecisionRow(Value):
    """One scheduling decision without its evidence."""

    region: RegionId
    generation: int
    attempt: int
    decided_at: AwareDatetime
    # How often it was decided again with the same findings, and when last.
    repeats: int
    repeated_at: AwareDatetime | None
    policy_revision: int
    cache_version: int
    placed: int
    unplaced: int
    pending: Pending | None


async def read_decisions_on(sources: Sources, filters: Filters) -> Rows[DecisionRow]:
    """So many of each region, the latest."""
    databases = sources.databases
    assert filters.workload is not None, "it is required"
    tenant, workload = filters.workload
    await require_workload(databases, tenant, workload)
    answers = await ask_regions(
        await sources.select_regions(filters.region),
        lambda region: read_decisions(databases, region, tenant, workload, last=filters.limit),
    )
    rows = [_decision_row(made) for found in answers.by_region.values() for made in found]
    return Rows(rows, answers.unreachable)


def _decision_row(decision: Decision) -> DecisionRow:
    proposal = Proposal.read(decision.evidence["proposal"])
    same = DecisionRow.model_fields.keys() & Decision.model_fields.keys()
    return DecisionRow(
        **{name: getattr(decision, name) for name in same},
        placed=len(proposal.assignments),
        unplaced=len(proposal.unplaced),
        pending=proposal.pending,
    )


class GenerationRow(GenerationRecord):
    """One generation in the history, and whether it is the one that is wanted."""

    is_current: bool


async def read_generations(sources: Sources, filters: Filters) -> Rows[GenerationRow]:
    assert filters.workload is not None, "it is required"
    workload = await require_workload(sources.databases, *filters.workload)
    wanted = None if workload.deleted else workload.generation
    records = await list_generations(sources.databases, *filters.workload)
    return Rows(
        [GenerationRow(**dict(one), is_current=one.generation == wanted) for one in records]
    )


async def read_waiting(sources: Sources, filters: Filters) -> Rows[QueuedRequest]:
    """Who waits for a node, in the order of each region's queue."""
    answers = await ask_regions(
        await sources.select_regions(filters.region),
        lambda region: read_queue(sources.databases, region),
    )
    rows = [request for queue in answers.by_region.values() for request in queue]
    return Rows(rows, answers.unreachable)
