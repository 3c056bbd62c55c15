"""How far a workload has come: counts by region, and conditions that say since when."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
    from durable.model.states import BindingState
    from durable.model.workload import Condition, WorkloadKind, WorkloadSpec
    from durable.signals.messages import Ended, ShareReport
    from durable.signals.status import RegionProgress, WorkloadStatus
    from durable.workflows.inbox import MessageRecord

_BOUND = frozenset(
    {
        BindingState.BOUND,
        BindingState.STARTING,
        BindingState.RUNNING,
        BindingState.READY,
        BindingState.SERVING,
        BindingState.UNKNOWN,
    }
)
_READY = frozenset({BindingState.READY, BindingState.SERVING})


class _Conditions:
    """Conditions as they are now; `since` moves only when a status does."""

    def __init__(self, known: Sequence[Condition], generation: Generation, now: datetime) -> None:
        self._known = {condition.type: condition for condition in known}
        self._generation = generation
        self._now = now

    def of(self, type: str, status: bool, sentence: str) -> Condition:
        known = self._known.get(type)
        return Condition(
            type=type,
            status=status,
            reason=type if status else f"Not{type}",
            sentence=sentence,
            since=known.since if known is not None and known.status == status else self._now,
            observed_generation=self._generation,
        )


def region_progress(
    region: RegionId, wanted: int, report: ShareReport | None, ended: Ended | None
) -> RegionProgress:
    # Both count the same replicas, and either may be missing or late.
    reported = 0 if report is None else report.completed
    completed = max(reported, 0 if ended is None else ended.completed)
    if report is None:
        return RegionProgress(region=region, wanted=wanted, completed=completed)
    counted = report.by_state
    return RegionProgress(
        region=region,
        wanted=wanted,
        bound=sum(count for state, count in counted.items() if state in _BOUND),
        ready=sum(count for state, count in counted.items() if state in _READY),
        serving=counted.get(BindingState.SERVING, 0),
        completed=completed,
        waiting=report.waiting,
        by_state={state.value: count for state, count in counted.items()},
        pending=report.pending,
    )


def progress_of(
    *,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    is_observed: bool,
    spec: WorkloadSpec,
    share: Mapping[RegionId, tuple[int, ...]],
    reports: Mapping[RegionId, ShareReport],
    ended: Mapping[RegionId, Ended],
    deleting: bool,
    done: bool,
    waits: Sequence[str],
    conditions: Sequence[Condition],
    record: MessageRecord,
    now: datetime,
) -> WorkloadStatus:
    """The status as the query answers it; nothing here changes what the workflow remembers."""
    current = {
        region: report for region, report in reports.items() if report.generation == generation
    }
    regions = tuple(
        region_progress(region, len(share.get(region, ())), current.get(region), ended.get(region))
        for region in sorted({*share, *current, *ended})
    )
    bound, ready, serving, completed = (
        sum(getattr(one, name) for one in regions)
        for name in ("bound", "ready", "serving", "completed")
    )
    given_up = sum(end.given_up for end in ended.values())
    over = given_up + sum(end.completed for end in ended.values())
    wanted = spec.replicas
    job = spec.kind is WorkloadKind.JOB
    told = _Conditions(conditions, generation, now)
    now_true = [told.of("Bound", bound >= wanted, f"{bound} of {wanted} are bound")]
    if job:
        lost = f", {given_up} {'was' if given_up == 1 else 'were'} given up" if given_up else ""
        sentence = f"{completed} of {wanted} are done{lost}"
        now_true.append(told.of("Complete", completed >= wanted, sentence))
    else:
        now_true.append(told.of("Serving", serving >= wanted, f"{serving} of {wanted} serve"))
    reasons = (*waits, *(one.waits for one in regions if one.waits))
    return WorkloadStatus(
        tenant=tenant,
        workload=workload,
        generation=generation,
        observed_generation=generation if is_observed else max(0, generation - 1),
        spec=spec,
        phase=_phase(
            deleting=deleting,
            is_over=done or (job and over >= wanted),
            is_whole=(completed if job else serving) >= wanted,
            is_job=job,
            waits=bool(reasons),
        ),
        wanted=wanted,
        bound=bound,
        ready=ready,
        serving=serving,
        completed=completed,
        deleting=deleting,
        conditions=tuple(now_true),
        regions=regions,
        waits_for=reasons,
        rejected=tuple(record.rejected),
        rejected_in_all=record.rejected_in_all,
    )


def _phase(*, deleting: bool, is_over: bool, is_whole: bool, is_job: bool, waits: bool) -> str:
    """The workload in one word.

    A job is complete when its placements say that they have ended, not when the last replica is
    counted: until then it is not run anew.
    """
    if deleting:
        return "deleting"
    if is_over:
        return "complete" if is_whole else "failed"
    if is_whole and not is_job:
        return "serving"
    return "waiting" if waits else "progressing"
