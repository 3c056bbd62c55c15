"""How far a workload has come: counts by region, and conditions that say since when."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
    from durable.model.recovery.readiness import Recoverable
    from durable.model.work.job_end import why_given_up
    from durable.model.work.phases import Counts, Owner, workload_phase
    from durable.model.work.rollout import RolloutProgress, RolloutState
    from durable.model.work.share import ShareCounts, ShareReport, completed_in
    from durable.model.work.workload import Condition, WorkloadKind, WorkloadSpec
    from durable.signals.status import RegionProgress, ShareProgress, WorkloadStatus
    from durable.validation.text import show_moment
    from durable.workflows.inbox import MessageLog


class _Conditions:
    """Conditions as they are now; `since` moves only when a status does."""

    def __init__(self, known: Sequence[Condition], generation: Generation, now: datetime) -> None:
        self._known = {condition.type: condition for condition in known}
        self._generation = generation
        self._now = now

    def of(
        self, type: str, status: bool | None, sentence: str, *, reason: str | None = None
    ) -> Condition:
        known = self._known.get(type)
        return Condition(
            type=type,
            status=status,
            reason=reason or (type if status else f"Not{type}"),
            sentence=sentence,
            since=known.since if known is not None and known.status == status else self._now,
            observed_generation=self._generation,
        )


def region_progress(
    region: RegionId, wanted: int, generation: Generation, reports: Sequence[ShareReport]
) -> RegionProgress:
    """What there is of all generations in one region; what it waits for is the wanted one's."""
    by_state: Counter[str] = Counter()
    counts = [Counts.of(report.by_state) for report in reports]
    for report in reports:
        by_state.update({state.value: count for state, count in report.by_state.items()})
    current = [one for one in reports if one.generation == generation]
    # What waits is of any generation; how far its slots have come is the wanted one's to say.
    counted = ShareCounts.total(current) | {"waiting": sum(one.waiting for one in reports)}
    return RegionProgress(
        **counted,
        bound=sum(one.bound for one in counts),
        ready=sum(one.ready for one in counts),
        serving=sum(one.serving for one in counts),
        region=region,
        wanted=wanted,
        updated=sum(Counts.of(one.by_state).serving for one in current),
        by_state=dict(by_state),
        pending=next((one.pending for one in [*current, *reports] if one.pending), None),
    )


def share_progress(report: ShareReport) -> ShareProgress:
    counts = Counts.of(report.by_state).model_dump()
    return ShareProgress(**counts, generation=report.generation, region=report.region)


def workload_status(
    *,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    observed_generation: int,
    spec: WorkloadSpec,
    share: Mapping[RegionId, tuple[int, ...]],
    reports: Sequence[ShareReport],
    stable: int | None = None,
    rollout: RolloutState | None,
    progress: RolloutProgress | None,
    is_deleting: bool,
    is_done: bool,
    waits: Sequence[str],
    conditions: Sequence[Condition],
    messages: MessageLog,
    now: datetime,
    due_at: datetime | None = None,
    deadline_missed_at: datetime | None = None,
    recoverable: Recoverable | None = None,
) -> WorkloadStatus:
    """The status as the query answers it; nothing here changes what the workflow remembers."""
    current = {one.region: one for one in reports if one.generation == generation}
    regions = tuple(
        region_progress(
            region,
            len(share.get(region, ())),
            generation,
            [one for one in reports if one.region == region],
        )
        for region in sorted({*share, *(one.region for one in reports)})
    )
    counts = Counts(
        bound=sum(one.bound for one in regions),
        ready=sum(one.ready for one in regions),
        serving=sum(one.serving for one in regions),
    )
    # What two regions have done is done once, and what one has given up another may have done.
    done = completed_in(current.values())
    completed = len(done)
    given_up = len({s for one in current.values() for s in one.given_up_slots} - done)
    is_job = spec.kind is WorkloadKind.JOB
    known = _Conditions(conditions, generation, now)
    return WorkloadStatus(
        **counts.model_dump(),
        tenant=tenant,
        workload=workload,
        generation=generation,
        observed_generation=observed_generation,
        spec=spec,
        phase=workload_phase(
            kind=spec.kind,
            wanted=spec.replicas,
            serving=counts.serving,
            completed=completed,
            is_waiting=bool(waits) or any(one.pending for one in regions),
            is_rolling=progress is not None or rollout is not None,
            is_paused=rollout is not None and rollout.pause is not None,
            has_ended=is_done,
            is_deleting=is_deleting,
        ),
        wanted=spec.replicas,
        updated=sum(one.updated for one in regions),
        completed=completed,
        given_up=given_up,
        failures=sum(report.failures for report in current.values()),
        due_at=due_at,
        deleting=is_deleting,
        conditions=(
            _opened(share, current, known, is_rolling=rollout is not None),
            *_conditions(spec, counts, completed, given_up, current, known, is_done=is_done),
            *(() if is_job else (_updated(generation, stable, rollout, progress, known),)),
            *_deadline(
                due_at,
                deadline_missed_at,
                known,
                is_done=is_job and completed >= spec.replicas,
                has_failed=is_done and completed < spec.replicas,
            ),
            *_recoverable(recoverable, known),
        ),
        regions=regions,
        shares=tuple(
            share_progress(one)
            for one in sorted(reports, key=lambda one: (one.generation, one.region))
            if one.is_known
        ),
        stable_generation=stable,
        rollout=rollout,
        progress=progress,
        own_waits=tuple(waits),
        rejected=tuple(messages.rejected),
        rejected_count=messages.rejected_count,
    )


def _updated(
    generation: Generation,
    stable: Generation | None,
    rollout: RolloutState | None,
    progress: RolloutProgress | None,
    now: _Conditions,
) -> Condition:
    """Whether every replica runs what is wanted."""
    if progress is None:
        return now.of("Updated", True, "nothing has to be replaced")
    why = progress.sentence
    if rollout is not None and rollout.rollback is not None:
        if rollout.goes_back(generation, stable):
            why = f"going back to generation {generation}, because {rollout.rollback}. {why}"
        else:
            failed = f"generation {generation} has failed, because {rollout.rollback}"
            why = f"{failed}; no other one was ever good, so apply one that is. {why}"
    return now.of("Updated", False, why)


def _opened(
    share: Mapping[RegionId, tuple[int, ...]],
    reports: Mapping[RegionId, ShareReport],
    now: _Conditions,
    *,
    is_rolling: bool,
) -> Condition:
    """Whether every share has a placement: one has once its region knows its request."""
    wanted = [region for region, slots in sorted(share.items()) if slots]
    missing = [region for region in wanted if region not in reports or not reports[region].is_known]
    opened = f"{len(wanted) - len(missing)} of {len(wanted)} shares have a placement"
    if not missing:
        return now.of("Opened", True, opened)
    if is_rolling:
        return now.of("Opened", False, f"{opened}; still to come: {', '.join(missing)}")
    sentence = f"{opened}; next: {Owner.WORKLOAD}; missing in {', '.join(missing)}"
    return now.of("Opened", False, sentence)


def _conditions(
    spec: WorkloadSpec,
    counts: Counts,
    completed: int,
    given_up: int,
    reports: Mapping[RegionId, ShareReport],
    now: _Conditions,
    *,
    is_done: bool,
) -> tuple[Condition, ...]:
    wanted = spec.replicas
    bound = now.of("Bound", counts.bound >= wanted, f"{counts.bound} of {wanted} are bound")
    if spec.kind is WorkloadKind.SERVICE:
        sentence = f"{counts.serving} of {wanted} serve"
        return bound, now.of("Serving", counts.serving >= wanted, sentence)
    lost = f", {given_up} {'was' if given_up == 1 else 'were'} given up" if given_up else ""
    sentence = f"{completed} of {wanted} are done{lost}"
    if why := why_given_up(spec, reports.values()):
        ended = now.of("Complete", False, f"{sentence}; {why}", reason="TooManyFailures")
        return bound, ended
    return bound, now.of("Complete", is_done and completed >= wanted, sentence)


def _deadline(
    due_at: datetime | None,
    missed_at: datetime | None,
    now: _Conditions,
    *,
    is_done: bool,
    has_failed: bool,
) -> tuple[Condition, ...]:
    """Whether a job was done in time; unknown while it still can be."""
    if due_at is None:
        return ()
    moment = show_moment(due_at)
    if missed_at is not None:
        sentence = f"it was not done by {moment}"
        return (now.of("DeadlineMet", False, sentence, reason="DeadlineMissed"),)
    if has_failed:
        sentence = f"it failed before {moment}"
        return (now.of("DeadlineMet", False, sentence, reason="JobFailed"),)
    if is_done:
        return (now.of("DeadlineMet", True, f"it was done by {moment}"),)
    return (now.of("DeadlineMet", None, f"due at {moment}", reason="DeadlineAhead"),)


def _recoverable(found: Recoverable | None, now: _Conditions) -> tuple[Condition, ...]:
    """Whether critical work would come back if a region were lost."""
    return () if found is None else (now.of("Recoverable", found.is_met, found.sentence),)
