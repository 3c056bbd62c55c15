"""Progress of workloads: what is waited for, shown until it is reached or late."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import list_regions
from durable.authority.reads.claims import Stop, read_stops
from durable.cli.render.delays import describe_delay, describe_stops
from durable.cli.render.output import progress
from durable.client import Durable, Until
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import WorkloadKind, WorkloadManifest
from durable.signals.status import WorkloadStatus

STAGES = ("bound", "ready", "serving")


@dataclass(frozen=True)
class WaitTarget:
    """A workload that somebody waits for, and how far it must come."""

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
        self._last_lines: dict[WaitTarget, str] = {}

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

    def show(self, target: WaitTarget, status: WorkloadStatus) -> None:
        counts = counts_of(status, target.until)
        if progress.is_terminal:
            self._move_bar(target, status, counts)
            return
        why = f"; waiting: {status.waits_for[0]}" if status.waits_for else ""
        line = f"{target}: {counts}{why}"
        if self._last_lines.get(target) != line:
            self._last_lines[target] = line
            progress.print(escape(line))

    def _move_bar(self, target: WaitTarget, status: WorkloadStatus, counts: str) -> None:
        if target not in self._tasks:
            workload = escape(str(target))
            self._tasks[target] = self._bars.add_task("", workload=workload, counts=counts)
        done, total = _steps(status, target.until)
        self._bars.update(self._tasks[target], completed=done, total=total, counts=counts)


def counts_of(status: WorkloadStatus, until: Until) -> str:
    """`3 bound, 2 ready, 1 serving of 3`."""
    if until == "deleted":
        return f"{status.phase}, {status.bound} still bound"
    if until == "complete":
        return f"{status.bound} bound, {status.completed} complete of {status.wanted}"
    stages = ", ".join(f"{getattr(status, stage)} {stage}" for stage in STAGES)
    return f"{stages} of {status.wanted}"


def _steps(status: WorkloadStatus, until: Until) -> tuple[int, int]:
    """Each stage counts for itself, so that the bar moves while nothing serves yet."""
    if until == "deleted":
        return (status.wanted - status.bound, max(1, status.wanted))
    if until == "complete":
        return (status.completed, max(1, status.wanted))
    done = sum(min(getattr(status, stage), status.wanted) for stage in STAGES)
    return (done if status.wanted else 1, max(1, 3 * status.wanted))


# A deletion that takes longer than this says what it waits for.
PATIENCE_SECONDS = 5.0
# Nobody who has waited long enough waits longer than this for the reason.
REASON_SECONDS = 2.0


async def wait_for_all(
    durable: Durable, targets: Sequence[WaitTarget], within_seconds: float
) -> list[WorkloadStatus]:
    """Shows every workload until it has come far enough, or refuses with the reason it has not."""
    latest: dict[WaitTarget, WorkloadStatus] = {}
    with ProgressDisplay() as display:
        tasks = [asyncio.create_task(_watch(durable, one, display, latest)) for one in targets]
        try:
            async with asyncio.timeout(within_seconds):
                await asyncio.gather(*tasks)
        except TimeoutError:
            stops = await asyncio.gather(*(_describe_deletion(durable, one) for one in targets))
            sentence = describe_delay(
                targets, latest, within_seconds, next(filter(None, stops), "")
            )
            raise RefusedError(RefusalCode.TIMED_OUT, sentence) from None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return [latest[target] for target in targets]


@contextmanager
def reassure_when_interrupted() -> Generator[None]:
    """Says that the interrupt undid nothing, and where to look."""
    try:
        yield
    except KeyboardInterrupt:
        progress.print("The change continues in the background; see `durable get workloads`.")
        raise


async def _watch(
    durable: Durable,
    target: WaitTarget,
    display: ProgressDisplay,
    latest: dict[WaitTarget, WorkloadStatus],
) -> None:
    hint = asyncio.create_task(_hint_at_delay(durable, target))
    try:
        async for status in durable.progress(target.tenant, target.name, until=target.until):
            latest[target] = status
            display.show(target, status)
    finally:
        hint.cancel()


async def _hint_at_delay(durable: Durable, target: WaitTarget) -> None:
    await asyncio.sleep(PATIENCE_SECONDS)
    if why := await _describe_deletion(durable, target):
        progress.print(escape(f"{target}: {why}"))


async def _describe_deletion(durable: Durable, target: WaitTarget) -> str:
    """What keeps a deletion; empty if nothing does, nobody can tell, or it is not one."""
    if target.until == "deleted":
        with suppress(AuthorityError, TimeoutError):
            async with asyncio.timeout(REASON_SECONDS):
                return describe_stops(await stops_of(durable.databases, target))
    return ""


async def stops_of(databases: Databases, target: WaitTarget) -> list[Stop]:
    """The workload's slots that are being stopped, in all regions."""
    tenant, name = TenantId(target.tenant), WorkloadName(target.name)
    return [
        stop
        for region in await list_regions(databases)
        for stop in await read_stops(databases, region, tenant, name)
    ]
