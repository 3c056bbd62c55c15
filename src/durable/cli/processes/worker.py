"""`durable worker`: runs workloads globally, or placements of regions, until stopped."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from durable.authority.db.connection import Databases, refuse_other_schema
from durable.authority.db.errors import CircuitOpenError
from durable.authority.fleet.regions import list_regions
from durable.cli.input.options import AsJson, StateDir, flag, load_settings, parse_option
from durable.cli.processes.stopping import force_exit_after
from durable.cli.render.output import conclude, progress
from durable.model.ids import RegionId
from durable.resources.resource import unknown_region
from durable.settings import Settings
from durable.signals.names import GLOBAL_QUEUE, regional_queue
from durable.temporal.connection import connect
from durable.temporal.running import workers_of
from durable.temporal.worker import (
    collect_garbage_rarely,
    global_worker,
    regional_worker,
    serve_every_region,
)

ALL = "all"
# Half of what docker-compose.yml leaves it before it is killed.
GRACE_SECONDS = 30
DRAIN_SHARE = 0.8


def worker(
    serve_global: Annotated[
        bool,
        flag("--global", help="Run the workflows of workloads."),
    ] = False,
    region: Annotated[
        list[str] | None,
        typer.Option(help="Run the placements of a region, or of all; repeatable."),
    ] = None,
    check: Annotated[
        bool, flag("--check", help="Only check that workers on this machine poll for them.")
    ] = False,
    grace: Annotated[
        int,
        typer.Option(
            min=1, max=3_600, help="Seconds within which it has ended after SIGTERM or SIGINT."
        ),
    ] = GRACE_SECONDS,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    if not serve_global and not region:
        raise typer.BadParameter("give --global, --region NAME or all, or both")
    regions = [parse_option("--region", RegionId, name) for name in dict.fromkeys(region or ())]
    settings = load_settings(state_dir)
    if check:
        _report_pollers(asyncio.run(_find_pollers(settings, serve_global, regions)), as_json)
        return
    _log_to_stderr()
    collect_garbage_rarely()
    asyncio.run(_serve(settings, serve_global, regions, grace))
    _log("stopped")


async def _serve(
    settings: Settings, serve_global: bool, regions: Sequence[RegionId], grace: int
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _drain, stop, grace)
    # What is left of the grace is for the queues behind the steps, and for closing connections.
    drain = timedelta(seconds=grace * DRAIN_SHARE)
    lease_seconds = settings.region_lease_seconds
    urls = settings.require_database_url(), settings.known_regional_urls()
    async with Databases(*urls) as databases:
        await refuse_other_schema(databases)
        requested: Sequence[RegionId] = () if ALL in regions else regions
        if requested:
            await _refuse_unknown(databases, requested)
        client = await connect(settings, settings.require_temporal_address())
        running: list[Coroutine[Any, Any, None]] = []
        if serve_global:
            serving = global_worker(client, databases, drain=drain, lease_seconds=lease_seconds)
            running.append(_run_until(stop, serving, "serving workloads"))
        if ALL in regions:
            running.append(
                serve_every_region(
                    client, databases, stop, _log, drain=drain, lease_seconds=lease_seconds
                )
            )
        for one in requested:
            serving = regional_worker(
                client, databases, one, drain=drain, lease_seconds=lease_seconds
            )
            running.append(_run_until(stop, serving, f"serving placements of {one}"))
        try:
            async with asyncio.TaskGroup() as tasks:
                for one in running:
                    tasks.create_task(one)
        except ExceptionGroup as group:
            # One sentence for people: the first failure cancelled the others.
            raise group.exceptions[0] from group


async def _run_until(stop: asyncio.Event, serving: Any, message: str) -> None:
    async with serving:
        _log(message)
        await stop.wait()


async def _refuse_unknown(databases: Databases, requested: Sequence[RegionId]) -> None:
    known = await list_regions(databases)
    for region in requested:
        if region not in known:
            raise unknown_region(
                region, known, " Name one of them, or serve every region with --region all."
            )


def _drain(stop: asyncio.Event, grace: int) -> None:
    if not stop.is_set():
        _log("draining: taking no new tasks, finishing those in progress")
        force_exit_after(grace, lambda: _log(f"stopped by force: not drained within {grace} s"))
    stop.set()


# ── checking for pollers ────────────────────────────────────────────────────────────────────────


async def _find_pollers(
    settings: Settings, serve_global: bool, regions: Sequence[RegionId]
) -> dict[str, list[str]]:
    polled = [region for region in regions if region != ALL]
    if ALL in regions:
        urls = settings.require_database_url(), settings.known_regional_urls()
        async with Databases(*urls) as databases:
            polled = await list_regions(databases)
    queues = [GLOBAL_QUEUE] if serve_global else []
    queues += [regional_queue(region) for region in polled]
    return await workers_of(settings, settings.require_temporal_address(), queues)


def _report_pollers(pollers: dict[str, list[str]], as_json: bool) -> None:
    idle = [queue for queue, workers in pollers.items() if not workers]
    sentence = (
        f"No worker on this machine polls {', '.join(idle)}: start `durable worker`, or read its "
        "log."
        if idle
        else None
    )
    content = {"served": not idle, "queues": pollers}
    conclude(as_json, content, lambda: None, failure=sentence, code="stack")


def _log(message: str) -> None:
    """One line per event, on stderr; where it cannot be written, what it tells of goes on."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    with contextlib.suppress(OSError, ValueError):  # a full disk, a closed pipe
        progress.print(f"{now} {message}", markup=False)


class _LogLines(logging.Handler):
    """One line per record, but for what an outage repeats: that it lasts is said once."""

    def filter(self, record: logging.LogRecord) -> bool:
        named = record.args if isinstance(record.args, tuple) else ()
        return not any(isinstance(one, CircuitOpenError) for one in named)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.format(record)
            message = f"{record.levelname.lower()}: {record.getMessage()}"
        except Exception:  # whatever is wrong with a line, who logs it goes on
            self.handleError(record)
            return
        _log(f"{message}\n{record.exc_text}" if record.exc_text else message)


def _log_to_stderr() -> None:
    # This command logs its own progress; libraries log only from warnings on.
    logging.basicConfig(level=logging.WARNING, handlers=[_LogLines()], force=True)
