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
    if report is None:
        done = 0 if ended is None else ended.completed
        return RegionProgress(region=region, wanted=wanted, completed=done)
    counted = report.by_state
    return RegionProgress(
        region=region,
        wanted=wanted,
        bound=sum(count for state, count in counted.items() if state in _BOUND),
        ready=sum(count for state, count in counted.items() if state in _READY),
        serving=counted.get(BindingState.SERVING, 0),
        completed=0 if ended is None else ended.completed,
        waiting=report.waiting,
        by_state={state.value: count for state, count in counted.items()},
        pending_reason=report.pending_reason,
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
    wanted = spec.replicas
    job = spec.kind is WorkloadKind.JOB
    told = _Conditions(conditions, generation, now)
    now_true = [told.of("Bound", bound >= wanted, f"{bound} of {wanted} are bound")]
    if job:
        lost = f", {given_up} were given up" if given_up else ""
        sentence = f"{completed} of {wanted} are done{lost}"
        now_true.append(told.of("Complete", completed >= wanted, sentence))
    else:
        now_true.append(told.of("Serving", serving >= wanted, f"{serving} of {wanted} serve"))
    reasons = (*waits, *(f"{r.region}: {r.pending_reason}" for r in regions if r.pending_reason))
    return WorkloadStatus(
        tenant=tenant,
        workload=workload,
        generation=generation,
        observed_generation=generation if is_observed else max(0, generation - 1),
        spec=spec,
        phase=_phase(deleting, done, job, completed, given_up, serving, wanted, bool(reasons)),
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


def _phase(
    deleting: bool,
    done: bool,
    job: bool,
    completed: int,
    given_up: int,
    serving: int,
    wanted: int,
    waits: bool,
) -> str:
    if deleting:
        return "deleting"
    if done:
        return "complete" if not given_up else "failed"
    if job and completed + given_up >= wanted:
        return "complete" if not given_up else "failed"
    if not job and serving >= wanted:
        return "serving"
    return "waiting" if waits else "progressing"
