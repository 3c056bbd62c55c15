"""What a workload's report says of its rollout, and which messages make sense now."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from durable.model.work.rollout import RolloutState, RolloutStep
from durable.model.work.workload import WorkloadKind
from durable.reports.report import Section, line, link, moment
from durable.signals.names import placement_id
from durable.signals.status import ShareProgress, WorkloadStatus


def rollout_sections(status: WorkloadStatus) -> tuple[Section, ...]:
    """The step and what it waits for."""
    if not status.is_rolling:
        return ()
    begun = [] if status.rollout is None else [_state(status, status.rollout)]
    progress = status.progress
    if progress is None:
        return (Section("Rollout", (*begun, "The next step is being planned.")),)
    surge = f"; {progress.surge_available} of {progress.surge} surge replicas are available"
    counts = (
        f"{progress.replaced} of {progress.wanted} replaced; {progress.available} are available "
        f"and at least {progress.must_be_available} have to be{surge if progress.surge else ''}"
    )
    return (Section("Rollout", (*begun, f"**{line(progress.sentence)}**", counts)),)


def _state(status: WorkloadStatus, rollout: RolloutState) -> str:
    if rollout.pause is not None:
        by = line(str(rollout.pause))
        since = moment(rollout.pause.since)
        return (
            f"**Paused** by {by}, since {since}; nothing more is replaced until `resume`, and no "
            "surge replica is kept."
        )
    if rollout.goes_back(status.generation, status.stable_generation):
        return f"**Going back** to generation {status.generation}: {line(rollout.rollback or '')}"
    if rollout.rollback is not None:
        return (
            f"**Generation {status.generation} has failed**: {line(rollout.rollback)}; no other "
            "one was ever good, so `apply` one that is."
        )
    good = status.stable_generation
    known = "no generation before it was good" if good is None else f"{good} was the last good one"
    return (
        f"Generation {status.generation} is being rolled out; {known}. Began "
        f"{moment(rollout.started_at)}, made progress {moment(rollout.progressed_at)}."
    )


def generation_sections(status: WorkloadStatus) -> tuple[Section, ...]:
    """The counts of every generation that is open, each share with a link to its placement."""
    if len({one.generation for one in status.shares}) < 2:
        return ()
    lines: list[str] = []
    for generation, group in groupby(status.shares, key=lambda one: one.generation):
        wanted = ", the wanted one" if generation == status.generation else ""
        shares = list(group)
        lines.append(f"**Generation {generation}**{wanted}: {_counts(shares)}")
        for one in shares:
            placement = placement_id(status.tenant, status.workload, generation, one.region)
            lines.append(f"- {one.region}: {_counts([one])}; {link(placement)}")
    return (Section("Generations", tuple(lines)),)


def _counts(shares: Sequence[ShareProgress]) -> str:
    counts = (sum(getattr(one, phase) for one in shares) for phase in ("serving", "ready", "bound"))
    serving, ready, bound = counts
    return f"{serving} serving, {ready} ready, {bound} bound"


def messages_for_now(status: WorkloadStatus) -> tuple[str, ...]:
    """The messages that would be accepted now and change something, the likeliest first."""
    if status.deleting:
        return ()
    if status.spec.kind is WorkloadKind.JOB:
        return ("apply", "delete")
    rollout, progress = status.rollout, status.progress
    if rollout is None:
        can_go_back = ("rollback",) if status.generation > 1 else ()
        return ("scale", "apply", "replace", *can_go_back)
    if rollout.rollback is not None:
        return ("apply", "scale")
    at_point = progress is not None and progress.step is RolloutStep.PAUSE_POINT
    promote = ("promote",) if at_point else ()
    return (*promote, "pause" if rollout.pause is None else "resume", "rollback", "apply")


def rollback_example(status: WorkloadStatus) -> dict[str, Any]:
    """Names the last good generation if that is another one; without a name it is found."""
    good = status.stable_generation
    return {"to": None if good == status.generation else good}
