"""Rows about workloads, placements and decisions; programs get the same fields as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import ClassVar, Self

from pydantic import AwareDatetime

from durable.activities.workload_steps import Admitted
from durable.authority.reads.shares import ShareKey, ShareStatus
from durable.cli.render.tables import Row, print_table
from durable.model.ids import RegionId
from durable.model.placement.claims import ObservedSlot
from durable.model.placement.pending import Pending
from durable.model.placement.records import Decision
from durable.model.states import BindingState, RequestState
from durable.model.work.phases import Counts, WorkloadPhase, workload_phase
from durable.model.work.workload import AdmittedWorkload, WorkloadKind, WorkloadManifest
from durable.scheduling.request import Proposal
from durable.signals.names import placement_id
from durable.signals.status import WorkloadStatus
from durable.validation.value import Value


class WorkloadSummary(Row):
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
    # What keeps it from being managed; nobody asks for that of one that is over.
    problem: str | None = None


class PlacementRow(Row):
    json_only: ClassVar[frozenset[str]] = frozenset({"region", "slots"})

    placement: str
    region: RegionId
    state: str
    placed: int
    serving: int
    waiting: int
    pending: Pending | None
    slots: tuple[ObservedSlot, ...]
    problem: str | None = None


class DecisionRow(Row):
    json_only: ClassVar[frozenset[str]] = frozenset({"policy_revision", "cache_version"})

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

    @classmethod
    def of(cls, decision: Decision) -> Self:
        proposal = Proposal.read(decision.evidence["proposal"])
        return cls(
            region=decision.region,
            generation=decision.generation,
            attempt=decision.attempt,
            decided_at=decision.decided_at,
            repeats=decision.repeats,
            repeated_at=decision.repeated_at,
            policy_revision=decision.policy_revision,
            cache_version=decision.cache_version,
            placed=len(proposal.assignments),
            unplaced=len(proposal.unplaced),
            pending=proposal.pending,
        )


def workload_row(
    one: AdmittedWorkload,
    shares: Sequence[ShareStatus],
    *,
    misplaced: int = 0,
    problem: str | None = None,
    now: datetime | None = None,
) -> WorkloadSummary:
    """Counts what there is of all generations, as the authority knows it.

    Slots that still have to move or end are what the workload itself waits for.
    """
    mine = [share for share in shares if share.key == key_of(one)]
    every = [share for share in shares if share.key[:2] == key_of(one)[:2]]
    is_service = one.spec.kind is WorkloadKind.SERVICE
    counts = Counts.of(_states(every if is_service else mine))
    is_rolling = one.rollout is not None or any(share.report().to_replace for share in mine)
    waiting = sum(share.request.waiting for share in mine if share.request is not None)
    completed = _completed(one, mine)
    return WorkloadSummary(
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
        failures=_failures(one, mine),
        deadline=one.deadline,
        seconds_left=_seconds_left(one, now or datetime.now(UTC)),
        priority=one.spec.priority,
        phase=_phase(one, mine, counts, completed or 0, misplaced, is_rolling=is_rolling),
        ended_at=one.deleted_at,
        problem=problem,
    )


def _states(shares: Sequence[ShareStatus]) -> Counter[BindingState]:
    return Counter(slot.state for share in shares for slot in share.slots if slot.state)


def _completed(one: AdmittedWorkload, shares: Sequence[ShareStatus]) -> int | None:
    if one.deleted:
        return one.replicas_by_state.get("completed")
    if one.spec.kind is WorkloadKind.SERVICE:
        return None
    return sum(share.request.completed for share in shares if share.request is not None)


def _failures(one: AdmittedWorkload, shares: Sequence[ShareStatus]) -> int | None:
    if one.deleted:
        return one.replicas_by_state.get("failures")
    if one.spec.kind is WorkloadKind.SERVICE:
        return None
    return sum(share.request.failures for share in shares if share.request is not None)


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
    over = {region for region, found in requests.items() if found.state is RequestState.WITHDRAWN}
    return workload_phase(
        kind=one.spec.kind,
        wanted=one.spec.replicas,
        serving=counts.serving,
        completed=completed,
        is_waiting=misplaced > 0 or any(found.pending for found in requests.values()),
        is_rolling=is_rolling,
        is_over=is_job and all(region in over for region, slots in one.share.items() if slots),
        is_deleting=one.deleting,
    )


def unrecorded_row(placement: str, region: RegionId, problem: str | None) -> PlacementRow:
    """A share that is wanted, and of which its region knows nothing yet."""
    return PlacementRow(
        placement=placement,
        region=region,
        state="unrecorded",
        placed=0,
        serving=0,
        waiting=0,
        pending=None,
        slots=(),
        problem=problem,
    )


def placement_row(share: ShareStatus, problem: str | None = None) -> PlacementRow:
    request = share.request
    return PlacementRow(
        placement=placement_of(share),
        region=share.region,
        state="ending" if request is None else request.state.value,
        placed=len(share.slots),
        serving=Counts.of(_states([share])).serving,
        waiting=0 if request is None else request.waiting,
        pending=None if request is None else request.pending,
        slots=share.slots,
        problem=problem,
    )


def placement_of(share: ShareStatus) -> str:
    return placement_id(share.tenant, share.workload, share.generation, share.region)


class AppliedWorkload(Value):
    """One workload after a change: what was admitted, and how far it came."""

    workload: str
    kind: WorkloadKind
    generation: int
    regions: Mapping[str, int]
    phase: str
    # Why it was rolled back; None if it was not.
    undone: str | None = None
    status: WorkloadStatus | None


def applied_row(
    manifest: WorkloadManifest,
    admitted: Admitted,
    status: WorkloadStatus | None,
    *,
    has_ended: bool = False,
    undone: str | None = None,
) -> AppliedWorkload:
    phase = "ended" if has_ended else status.phase if status else "admitted"
    return AppliedWorkload(
        workload=f"{manifest.tenant}/{manifest.name}",
        kind=manifest.spec.kind,
        generation=admitted.generation,
        regions={str(region): len(slots) for region, slots in admitted.share.items()},
        phase=phase if undone is None else "rolled back",
        undone=undone,
        status=status,
    )


def print_applied(rows: Sequence[AppliedWorkload]) -> None:
    heads = ["Workload", "Kind", "Generation", "Regions", "Phase", "Replicas"]
    cells = [_applied_cells(row) for row in rows]
    if any(row.undone for row in rows):
        heads.append("Reason")
        cells = [[*some, row.undone or ""] for some, row in zip(cells, rows, strict=True)]
    print_table(heads, cells)


def _applied_cells(row: AppliedWorkload) -> list[str]:
    count = ""
    if row.status is not None:
        stage = "completed" if row.kind is WorkloadKind.JOB else "serving"
        count = f"{getattr(row.status, stage)} {stage} of {row.status.wanted}"
    shares = ", ".join(f"{region} {slots}" for region, slots in sorted(row.regions.items()))
    return [row.workload, row.kind, str(row.generation), shares, row.phase, count]


def failure_of(rows: Sequence[AppliedWorkload]) -> str | None:
    """Which of them failed, in a sentence."""
    failed = [row.workload for row in rows if row.phase == "failed"]
    if not failed:
        return None
    have = "has" if len(failed) == 1 else "have"
    return (
        f"{', '.join(failed)} {have} failed: some replicas were given up; "
        f"see `durable explain {failed[0]}`."
    )


def undone_of(rows: Sequence[AppliedWorkload]) -> str | None:
    """What was rolled back, and why, in a sentence."""
    undone = [row for row in rows if row.undone is not None]
    if not undone:
        return None
    others = len(undone) - 1
    more = f" {others} more {'was' if others == 1 else 'were'} rolled back too." if others else ""
    return f"{undone[0].undone}{more} See `durable rollout history {undone[0].workload}`."
