"""How far workloads have come: bars on a terminal, a line per change elsewhere."""

from dataclasses import dataclass
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from durable.cli.render.following import ChangedLines
from durable.cli.render.output import progress
from durable.client import Until
from durable.model.work.workload import WorkloadKind, WorkloadManifest
from durable.signals.status import WorkloadStatus
from durable.validation.text import show_moment

STAGES = ("bound", "ready", "serving")


@dataclass(frozen=True)
class WaitTarget:
    """A workload that is waited for, and how far it must come."""

    tenant: str
    name: str
    until: Until

    @classmethod
    def of(cls, manifest: WorkloadManifest) -> Self:
        is_job = manifest.spec.kind is WorkloadKind.JOB
        return cls(manifest.tenant, manifest.name, "complete" if is_job else "serving")

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


class ProgressDisplay:
    """Shows the latest status of each workload on stderr."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.fields[workload]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            console=progress,
        )
        self._tasks: dict[WaitTarget, TaskID] = {}
        self._lines: dict[WaitTarget, ChangedLines] = {}

    def __enter__(self) -> Self:
        if progress.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if progress.is_terminal:
            self._bars.stop()

    def show(self, target: WaitTarget, status: WorkloadStatus) -> None:
        counts = counts_of(status, target.until)
        if progress.is_terminal:
            self._move_bar(target, status, counts)
            return
        lines = self._lines.setdefault(target, ChangedLines())
        lines.show(f"{target}: {counts}{_why(status)}")

    def _move_bar(self, target: WaitTarget, status: WorkloadStatus, counts: str) -> None:
        if target not in self._tasks:
            workload = escape(str(target))
            self._tasks[target] = self._bars.add_task("", workload=workload, counts=counts)
        done, total = _steps(status, target.until)
        self._bars.update(self._tasks[target], completed=done, total=total, counts=counts)


def _why(status: WorkloadStatus) -> str:
    """What it waits for; of a rollout, its own sentence comes first."""
    waits = f"; waiting: {status.waits_for[0]}" if status.waits_for else ""
    return waits if status.progress is None else f". {status.progress.sentence}{waits}"


def counts_of(status: WorkloadStatus, until: Until) -> str:
    """`3 bound, 2 ready, 1 serving of 3`, and of a rollout how many are replaced."""
    if until == "deleted":
        return f"{status.phase}, {status.bound} still bound"
    if until == "complete":
        failed = f", {status.failures} failed" if status.failures else ""
        counts = f"{status.bound} bound, {status.completed} complete{failed} of {status.wanted}"
        return counts if status.due_at is None else f"{counts}; due {show_moment(status.due_at)}"
    phases = ", ".join(f"{getattr(status, phase)} {phase}" for phase in STAGES)
    rolling = status.progress
    replaced = "" if rolling is None else f"{rolling.replaced} replaced, "
    return f"{replaced}{phases} of {status.wanted}"


def _steps(status: WorkloadStatus, until: Until) -> tuple[int, int]:
    """Each phase counts for itself, so that the bar moves while nothing serves yet."""
    if until == "deleted":
        return (status.wanted - status.bound, max(1, status.wanted))
    if until == "complete":
        return (status.completed, max(1, status.wanted))
    if status.progress is not None:
        return (status.progress.replaced, max(1, status.progress.wanted))
    done = sum(min(getattr(status, phase), status.wanted) for phase in STAGES)
    return (done if status.wanted else 1, max(1, 3 * status.wanted))
