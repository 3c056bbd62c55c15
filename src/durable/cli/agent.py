"""`durable agent`: hosts nodes, really or as a simulation, until it is told to end."""

import asyncio
import signal
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from durable.agent.agent import Agent
from durable.agent.faults import Faults, FaultsError, read_faults
from durable.agent.hosting import DeclaredNodes, host_every_region
from durable.agent.log import EventLog
from durable.agent.pace import Pace
from durable.agent.simulated import Delays, SimulatedDriver
from durable.authority.connection import Databases
from durable.authority.errors import AuthorityUnreachableError
from durable.authority.regions import read_region
from durable.cli.authority import with_authority
from durable.cli.options import StateDir
from durable.model.ids import ActorId, RegionId

ALL = "all"
# How long the authority may take to say that there is no such region.
FIRST_ANSWER_SECONDS = 5.0

_DELAYS, _PACE = Delays(), Pace()


def agent(
    region: Annotated[str, typer.Option(help="The region of the nodes, or all (simulated).")],
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Pretend to be all nodes that are declared.")
    ] = False,
    start_delay: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds until a simulated replica runs.")
    ] = _DELAYS.start_seconds,
    ready_delay: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds from running until ready.")
    ] = _DELAYS.ready_seconds,
    job_duration: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds that a simulated job takes.")
    ] = _DELAYS.job_seconds,
    seed: Annotated[int, typer.Option(help="Of the spread of simulated delays.")] = 0,
    faults: Annotated[
        Path | None, typer.Option(help="Faults of simulated replicas; read again when changed.")
    ] = None,
    lease: Annotated[
        int, typer.Option(min=1, max=86_400, help="Seconds that a node's lease lasts.")
    ] = _PACE.lease_ttl_seconds,
    as_json: Annotated[bool, typer.Option("--json", help="Log JSON lines.")] = False,
    state_dir: StateDir = None,
) -> None:
    """Host nodes: start and stop what is bound to them, and report what is seen."""
    log = EventLog(as_json=as_json)
    pace = Pace(lease_ttl_seconds=lease)
    delays = Delays(start_seconds=start_delay, ready_seconds=ready_delay, job_seconds=job_duration)
    known = _checked_faults(faults)

    def agent_of(databases: Databases, region: RegionId) -> Agent:
        return Agent(
            databases,
            region,
            DeclaredNodes(databases, region),
            SimulatedDriver(delays, faults=Faults(known, log), seed=seed),
            name=ActorId(f"agent:simulated/{region}"),
            log=log,
            pace=pace,
            tells_each=False,
        )

    async def work(databases: Databases) -> None:
        if region == ALL:
            running = host_every_region(databases, lambda name: agent_of(databases, name), log)
        else:
            await _refuse_unknown(databases, named)
            running = agent_of(databases, named).run()
        await _until_told(running, log)

    named = _region(region)
    with_authority(state_dir, work)


def _region(text: str) -> RegionId:
    try:
        return RegionId(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--region") from None


def _checked_faults(path: Path | None) -> Path | None:
    try:
        if path is not None:
            read_faults(path)
    except FaultsError as error:
        raise typer.BadParameter(str(error), param_hint="--faults") from None
    return path


async def _refuse_unknown(databases: Databases, region: RegionId) -> None:
    """A misspelt region ends the command; an authority that is away does not."""
    with suppress(AuthorityUnreachableError, TimeoutError):
        async with asyncio.timeout(FIRST_ANSWER_SECONDS):
            await read_region(databases, region)


async def _until_told(running: Awaitable[None], log: EventLog) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(running)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log("ended")
