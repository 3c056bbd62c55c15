"""The health of the whole stack: its parts, and everything that keeps a placement from going on."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.health.diagnosis import diagnose, full_disks_of
from durable.health.findings import FindingCode, HealthFinding
from durable.settings import Settings
from durable.stack.parts import PartStatus, part_statuses
from durable.state_dir.record import StackRecord, is_running, read_record, why_nothing_runs
from durable.temporal.processes import is_here
from durable.validation.value import Value


class StackStatus(Value):
    """The whole stack; healthy when a placement would go through now."""

    state_dir: str
    running: bool
    healthy: bool
    detail: str
    supervisor_pid: int | None = None
    temporal_ui_url: str | None = None
    parts: tuple[PartStatus, ...] = ()
    findings: tuple[HealthFinding, ...] = ()

    @property
    def sentence(self) -> str:
        """The first thing that is wrong; how the stack is, if nothing is."""
        if self.findings:
            return str(self.findings[0])
        ill = next((part for part in self.parts if not part.healthy), None)
        if not self.running or ill is None:
            return self.detail
        return f"{ill.name} is not healthy: {ill.detail.rstrip('.')}."


def stack_status(settings: Settings) -> StackStatus:
    """Read the record, then probe each part and look for what is wrong."""
    path = settings.state_dir.absolute()
    record = read_record(path)
    running = is_running(path)
    if record is None:
        detail = why_nothing_runs(path)
        return StackStatus(state_dir=str(path), running=running, healthy=False, detail=detail)
    parts, found = asyncio.run(_look(settings, record, running))
    works = running and record.phase == "running" and all(part.healthy for part in parts)
    return StackStatus(
        state_dir=str(path),
        running=running,
        healthy=works and not found,
        detail=_detail(record, running, path),
        supervisor_pid=record.supervisor.pid if running else None,
        temporal_ui_url=record.temporal_ui_url if running else None,
        parts=parts,
        findings=found,
    )


async def _look(
    settings: Settings, record: StackRecord, running: bool
) -> tuple[tuple[PartStatus, ...], tuple[HealthFinding, ...]]:
    """With the same connections throughout: who was found to hang is not waited for again."""
    url = settings.database_url or record.database_url
    async with AsyncExitStack() as stack:
        databases = None
        if url is not None:
            opened = Databases(url, settings.known_regional_urls())
            databases = await stack.enter_async_context(opened)
        parts = await part_statuses(settings, record, databases)
        found = await _findings(settings, record, databases, parts) if running else ()
        return _with_silent(parts, found), found


async def _findings(
    settings: Settings,
    record: StackRecord,
    databases: Databases | None,
    parts: tuple[PartStatus, ...],
) -> tuple[HealthFinding, ...]:
    address = settings.temporal_address or record.temporal_address
    # A server that does not answer is named as a part; nothing else can be asked of it.
    ill = {part.name for part in parts if not part.healthy}
    if databases is None or "postgres" in ill:
        return tuple(full_disks_of(settings))
    try:
        reached = None if "temporal" in ill else address
        return tuple(await diagnose(settings, databases, reached))
    except AuthorityError:
        # It answered a moment ago; the workers' own probes say that it does not any more.
        return tuple(full_disks_of(settings))


def _with_silent(
    parts: tuple[PartStatus, ...], found: tuple[HealthFinding, ...]
) -> tuple[PartStatus, ...]:
    """A worker that hangs polls nothing, although Temporal still lists its last poll."""
    silent = {
        int(name.partition("@")[0])
        for one in found
        if one.code is FindingCode.WORKER_SILENT
        for name in one.names
        if is_here(name)
    }
    return tuple(
        part.model_copy(update={"healthy": False, "detail": "it gives no sign of life"})
        if part.pid in silent
        else part
        for part in parts
    )


def _detail(record: StackRecord, running: bool, path: Path) -> str:
    if running:
        return "The stack is running." if record.phase == "running" else "The stack is starting."
    return why_nothing_runs(path)
