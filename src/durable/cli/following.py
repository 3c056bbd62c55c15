"""Progress of workloads on their way: bars on a terminal, a line per change elsewhere."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from durable.cli.output import progress
from durable.client import Durable, Until
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import WorkloadKind, WorkloadManifest
from durable.signals.status import WorkloadStatus

STAGES = ("bound", "ready", "serving")


@dataclass(frozen=True)
class Followed:
    """A workload that somebody waits for, and how far it shall come."""

    tenant: str
    name: str
    until: Until

    @classmethod
    def of(cls, manifest: WorkloadManifest) -> Self:
        is_job = manifest.spec.kind is WorkloadKind.JOB
        return cls(manifest.tenant, manifest.name, "complete" if is_job else "serving")

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


class Board:
    """What is shown meanwhile, on stderr alone."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.fields[words]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            console=progress,
        )
        self._tasks: dict[Followed, TaskID] = {}
        self._told: dict[Followed, str] = {}

    def __enter__(self) -> Self:
        if progress.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if progress.is_terminal:
            self._bars.stop()

    def show(self, followed: Followed, status: WorkloadStatus) -> None:
        counts = counts_of(status, followed.until)
        why = f"; waits: {status.waits_for[0]}" if status.waits_for else ""
        if not progress.is_terminal:
            line = f"{followed}: {counts}{why}"
            if self._told.get(followed) != line:
                self._told[followed] = line
                progress.print(escape(line))
            return
        if followed not in self._tasks:
            words = escape(str(followed))
            self._tasks[followed] = self._bars.add_task("", words=words, counts=counts)
        # Each stage counts for itself, so that the bar moves while nothing serves yet.
        done, total = _steps(status, followed.until)
        self._bars.update(self._tasks[followed], completed=done, total=total, counts=counts)


def counts_of(status: WorkloadStatus, until: Until) -> str:
    if until == "deleted":
        return f"{status.phase}, {status.bound} still bound"
    if until == "complete":
        return f"{status.bound} bound, {status.completed} complete of {status.wanted}"
    stages = ", ".join(f"{getattr(status, stage)} {stage}" for stage in STAGES)
    return f"{stages} of {status.wanted}"


def _steps(status: WorkloadStatus, until: Until) -> tuple[int, int]:
    if until == "deleted":
        return (status.wanted - status.bound, max(1, status.wanted))
    if until == "complete":
        return (status.completed, max(1, status.wanted))
    done = sum(min(getattr(status, stage), status.wanted) for stage in STAGES)
    return (done if status.wanted else 1, max(1, 3 * status.wanted))


async def follow(
    durable: Durable, all_of: Sequence[Followed], within_seconds: float
) -> list[WorkloadStatus]:
    """Shows every workload until it has come so far, or says which has not and why."""
    last: dict[Followed, WorkloadStatus] = {}

    async def one(followed: Followed) -> None:
        names = (followed.tenant, followed.name)
        async for status in durable.progress(*names, until=followed.until):
            last[followed] = status
            board.show(followed, status)

    with Board() as board:
        tasks = [asyncio.create_task(one(followed)) for followed in all_of]
        try:
            async with asyncio.timeout(within_seconds):
                await asyncio.gather(*tasks)
        except TimeoutError:
            raise RefusedError(
                RefusalCode.WRONG_STATE, _late(all_of, last, within_seconds)
            ) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return [last[followed] for followed in all_of]


def _late(
    all_of: Sequence[Followed], last: dict[Followed, WorkloadStatus], within_seconds: float
) -> str:
    """Which came not far enough, and of the first of them why."""
    behind = [f for f in all_of if f not in last or not _has_come(last[f], f.until)] or [*all_of]
    status = last.get(behind[0])
    said = "it did not answer" if status is None else counts_of(status, behind[0].until)
    why = f" It waits: {status.waits_for[0]}" if status is not None and status.waits_for else ""
    more = len(behind) - 1
    others = f", nor {'is' if more == 1 else 'are'} {more} more," if more else ""
    return (
        f"{behind[0]} is not {behind[0].until}{others} after {within_seconds:.0f} s: {said}.{why} "
        f"It goes on by itself; see durable explain {behind[0]}."
    )[:500]


def _has_come(status: WorkloadStatus, until: Until) -> bool:
    if until in ("complete", "deleted"):
        return status.phase in ("complete", "failed")
    return status.serving >= status.wanted
