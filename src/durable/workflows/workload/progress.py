"""How far a workload has come: counts by region, and conditions that say since when."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
    from durable.model.phases import Counts, workload_phase
    from durable.model.workload import Condition, WorkloadKind, WorkloadSpec
    from durable.signals.payloads import PlacementEnded, ShareReport
    from durable.signals.status import RegionProgress, WorkloadStatus
    from durable.workflows.inbox import MessageLog


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
    region: RegionId, wanted: int, report: ShareReport | None, ended: PlacementEnded | None
) -> RegionProgress:
    # Both count the same replicas, and either may be missing or late.
    reported = 0 if report is None else report.completed
    completed = max(reported, 0 if ended is None else ended.completed)
    if report is None:
        return RegionProgress(region=region, wanted=wanted, completed=completed)
    return RegionProgress(
        **Counts.of(report.by_state).model_dump(),
        region=region,
        wanted=wanted,
        completed=completed,
        waiting=report.waiting,
        by_state={state.value: count for state, count in report.by_state.items()},
        pending=report.pending,
    )


def workload_status(
    *,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    is_observed: bool,
    spec: WorkloadSpec,
    share: Mapping[RegionId, tuple[int, ...]],
    reports: Mapping[RegionId, ShareReport],
    ended: Mapping[RegionId, PlacementEnded],
    is_deleting: bool,
    is_done: bool,
    waits: Sequence[str],
    conditions: Sequence[Condition],
    messages: MessageLog,
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
    counts = Counts(
        bound=sum(one.bound for one in regions),
        ready=sum(one.ready for one in regions),
        serving=sum(one.serving for one in regions),
    )
    completed = sum(one.completed for one in regions)
    given_up = sum(end.given_up for end in ended.values())
    over = given_up + sum(end.completed for end in ended.values())
    is_job = spec.kind is WorkloadKind.JOB
    return WorkloadStatus(
        **counts.model_dump(),
        tenant=tenant,
        workload=workload,
        generation=generation,
        observed_generation=generation if is_observed else max(0, generation - 1),
        spec=spec,
        phase=workload_phase(
            kind=spec.kind,
            wanted=spec.replicas,
            serving=counts.serving,
            completed=completed,
            is_waiting=bool(waits) or any(one.pending for one in regions),
            is_over=is_done or (is_job and over >= spec.replicas),
            is_deleting=is_deleting,
        ),
        wanted=spec.replicas,
        completed=completed,
        deleting=is_deleting,
        conditions=_conditions(
            spec, counts, completed, given_up, _Conditions(conditions, generation, now)
        ),
        regions=regions,
        own_waits=tuple(waits),
        rejected=tuple(messages.rejected),
        rejected_count=messages.rejected_count,
    )


def _conditions(
    spec: WorkloadSpec, counts: Counts, completed: int, given_up: int, now: _Conditions
) -> tuple[Condition, ...]:
    wanted = spec.replicas
    bound = now.of("Bound", counts.bound >= wanted, f"{counts.bound} of {wanted} are bound")
    if spec.kind is WorkloadKind.SERVICE:
        sentence = f"{counts.serving} of {wanted} serve"
        return bound, now.of("Serving", counts.serving >= wanted, sentence)
    lost = f", {given_up} {'was' if given_up == 1 else 'were'} given up" if given_up else ""
    sentence = f"{completed} of {wanted} are done{lost}"
    return bound, now.of("Complete", completed >= wanted, sentence)
