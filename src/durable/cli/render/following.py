"""Progress of workloads on their way: bars on a terminal, a line per change elsewhere."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from durable.authority.db.errors import AuthorityError
from durable.cli.render.followed import STAGES, Followed, counts_of, late
from durable.cli.render.output import progress
from durable.cli.render.stopping import stops_of, why_it_stands
from durable.client import Durable, Until
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.status import WorkloadStatus

# A deletion that takes longer than this says what it waits for.
PATIENCE_SECONDS = 5.0
# Whoever has waited long enough is not kept for the reason.
REASON_SECONDS = 2.0


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

    async def patiently(followed: Followed) -> None:
        telling = asyncio.create_task(_tell_why_not_gone(durable, followed))
        try:
            await one(followed)
        finally:
            telling.cancel()

    with Board() as board:
        tasks = [asyncio.create_task(patiently(followed)) for followed in all_of]
        try:
            async with asyncio.timeout(within_seconds):
                await asyncio.gather(*tasks)
        except TimeoutError:
            stopping = await asyncio.gather(*(_why_not_gone(durable, one) for one in all_of))
            sentence = late(all_of, last, within_seconds, next(filter(None, stopping), ""))
            raise RefusedError(RefusalCode.TIMED_OUT, sentence) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return [last[followed] for followed in all_of]


async def _tell_why_not_gone(durable: Durable, followed: Followed) -> None:
    await asyncio.sleep(PATIENCE_SECONDS)
    if why := await _why_not_gone(durable, followed):
        progress.print(escape(f"{followed}: {why}"))


async def _why_not_gone(durable: Durable, followed: Followed) -> str:
    """What keeps a deletion; empty if nothing does, nobody can tell, or it is not one."""
    if followed.until == "deleted":
        with suppress(AuthorityError, TimeoutError):
            async with asyncio.timeout(REASON_SECONDS):
                return why_it_stands(await stops_of(durable.databases, followed))
    return ""
