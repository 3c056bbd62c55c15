"""A rollout as people read it: how far it has come, what it waits for, how the last one ended."""

from collections.abc import Sequence
from itertools import groupby
from typing import Self

from durable.cli.render.output import print_lines, results, timestamp
from durable.explain.rollback import why_rolled_back
from durable.model.work.phases import Counts
from durable.model.work.rollout import (
    GenerationRecord,
    RolloutPause,
    RolloutProgress,
    RolloutState,
)
from durable.signals.status import ShareProgress, WorkloadStatus
from durable.validation.value import Value


class RolloutReport(Value):
    """Where a workload's rollout is, for programs and people alike."""

    workload: str
    # What is wanted, and the last generation of which every replica served at once.
    generation: int
    stable_generation: int | None
    is_rolling: bool
    rollout: RolloutState | None
    progress: RolloutProgress | None
    # What it waits for; first the rollout's own sentence.
    waits_for: tuple[str, ...]
    pause: RolloutPause | None
    wanted: int
    updated: int
    bound: int
    ready: int
    serving: int
    shares: tuple[ShareProgress, ...]
    # Why the newest generation is not what is wanted; None if it is.
    undone: str | None

    @classmethod
    def of(cls, status: WorkloadStatus, records: Sequence[GenerationRecord]) -> Self:
        own = () if status.progress is None else (status.progress.sentence,)
        rollout = status.rollout
        return cls(
            workload=f"{status.tenant}/{status.workload}",
            generation=status.generation,
            stable_generation=status.stable_generation,
            is_rolling=status.is_rolling,
            rollout=rollout,
            progress=status.progress,
            waits_for=(*own, *status.waits_for),
            pause=None if rollout is None else rollout.pause,
            wanted=status.wanted,
            updated=status.updated,
            bound=status.bound,
            ready=status.ready,
            serving=status.serving,
            shares=status.shares,
            undone=_undone(records, status.generation),
        )


def _undone(records: Sequence[GenerationRecord], wanted: int) -> str | None:
    if not records or records[-1].generation == wanted:
        return None
    newest = records[-1].generation
    why = why_rolled_back(records, newest, wanted)
    return None if why is None else f"Generation {newest} {why}"


def print_rollout(report: RolloutReport) -> None:
    results.print(f"[bold]{report.workload}[/]: {_headline(report)}")
    print_lines(_lines(report), indent=2)


def _headline(report: RolloutReport) -> str:
    generation = f"generation {report.generation}"
    if not report.is_rolling:
        settled = "is complete" if report.updated >= report.wanted else "is not complete"
        return f"{generation} {settled}"
    if report.rollout is None:
        return f"replicas of {generation} are being replaced"
    if report.rollout.undoing is None:
        good = report.stable_generation
        known = f"generation {good} was the last good one" if good else "none was good before it"
        return f"{generation} is being rolled out; {known}"
    if not report.rollout.goes_back(report.generation, report.stable_generation):
        return f"{generation} has failed, and there is no good one to go back to"
    return f"going back to {generation}"


def _lines(report: RolloutReport) -> list[str]:
    lines = [] if report.undone is None else [report.undone]
    if report.progress is not None:
        lines += _progress(report, report.progress)
    lines.append(f"Replicas: {_counts(report)} of {report.wanted}")
    for generation, shares in groupby(report.shares, key=lambda one: one.generation):
        some = list(shares)
        if report.is_rolling and any(one.bound for one in some):
            lines.append(f"  generation {generation}: {_counts(_sum(some))}")
    if report.waits_for:
        lines += [f"Waits: {wait}" for wait in report.waits_for]
    if report.pause is not None:
        lines.append(
            f"Paused by {report.pause}, since {timestamp(report.pause.since)}; go on with `durable "
            f"rollout resume {report.workload}`"
        )
    return lines


def _progress(report: RolloutReport, progress: RolloutProgress) -> list[str]:
    where = "" if progress.region is None else f" in {progress.region}"
    lines = [
        f"Step: {progress.step.replace('_', ' ')}{where}",
        f"Replaced: {progress.replaced} of {progress.wanted}; at least "
        f"{progress.must_be_available} have to be available, and {progress.available} are",
    ]
    if progress.surge:
        lines.append(f"Surge: {progress.surge_available} of {progress.surge} are available")
    rollout = report.rollout
    if rollout is not None and rollout.undoing is None and rollout.pause is None:
        lines.append(
            f"Began {timestamp(rollout.started_at)}, made progress "
            f"{timestamp(rollout.progressed_at)}"
        )
    return lines


def _sum(shares: Sequence[ShareProgress]) -> Counts:
    return Counts(
        bound=sum(one.bound for one in shares),
        ready=sum(one.ready for one in shares),
        serving=sum(one.serving for one in shares),
    )


def _counts(counts: Counts | RolloutReport) -> str:
    return f"{counts.bound} bound, {counts.ready} ready, {counts.serving} serving"
