"""`durable agent`: runs the agent of one real node, or of all simulated nodes, until stopped."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from durable.agent.agent import Agent
from durable.agent.hosting import host_every_region, host_region
from durable.agent.leases import Timing
from durable.agent.log import EventLog
from durable.agent.nodes import DeclaredNodes, OwnNode
from durable.agent.process.driver import ProcessDriver
from durable.agent.process.node_directory import NodeDirectory, PersistentLeases
from durable.agent.simulated.driver import Delays, SimulatedDriver
from durable.agent.simulated.faults import Faults, FaultsError, read_faults
from durable.authority.db.connection import Databases, refuse_other_schema
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.fleet.regions import read_region
from durable.cli.connections import with_authority
from durable.cli.input.node_spec import parse_node_spec
from durable.cli.input.options import StateDir, flag, load_settings, parse_option
from durable.cli.processes.stopping import force_exit_after
from durable.model.fleet.manifest import MAX_GPUS_PER_NODE, NodeSpec
from durable.model.ids import ActorId, RegionId

ALL = "all"
# How long to wait for the authority before the region is taken to exist.
REGION_CHECK_SECONDS = 5.0
# Its replicas run on without it, so there is little to wait for.
GRACE_SECONDS = 10
_DELAYS, _TIMING = Delays(), Timing()


def agent(
    region: Annotated[str, typer.Option(help="The region, or all if simulated.")],
    simulated: Annotated[
        bool, flag("--simulated", help="Simulate every node that the fleet declares.")
    ] = False,
    start_delay: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds until a simulated replica is running.")
    ] = _DELAYS.start_seconds,
    ready_delay: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds from running to ready.")
    ] = _DELAYS.ready_seconds,
    job_duration: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds that a simulated job runs.")
    ] = _DELAYS.job_seconds,
    seed: Annotated[int, typer.Option(help="Seed of the random spread of these delays.")] = 0,
    faults: Annotated[
        Path | None,
        typer.Option(help="A YAML file of faults, read again when it changes."),
    ] = None,
    node: Annotated[str | None, typer.Option(help="Run one real node under this name.")] = None,
    zone: Annotated[str | None, typer.Option(help="The node's zone.")] = None,
    pool: Annotated[str, typer.Option(help="The node's pool.")] = "process",
    cpu: Annotated[str | None, typer.Option(help="The node's CPU, such as 4 or 500m.")] = None,
    memory: Annotated[str | None, typer.Option(help="The node's memory, such as 8Gi.")] = None,
    gpu: Annotated[int, typer.Option(min=0, max=MAX_GPUS_PER_NODE, help="The node's GPUs.")] = 0,
    label: Annotated[list[str] | None, typer.Option(help="A label, KEY=VALUE; repeatable.")] = None,
    taint: Annotated[
        list[str] | None, typer.Option(help="A taint, KEY=VALUE:EFFECT; repeatable.")
    ] = None,
    lease: Annotated[
        int, typer.Option(min=1, max=86_400, help="Seconds that a node lease lasts.")
    ] = _TIMING.lease_ttl_seconds,
    as_json: Annotated[bool, flag("--json", help="Log JSON lines.")] = False,
    state_dir: StateDir = None,
) -> None:
    if simulated == (node is not None):
        raise typer.BadParameter("give either --simulated or --node NAME")
    log, timing = EventLog(as_json=as_json), Timing(lease_ttl_seconds=lease)
    region_id = parse_option("--region", RegionId, region)
    if simulated:
        delays = Delays(
            start_seconds=start_delay, ready_seconds=ready_delay, job_seconds=job_duration
        )
        _simulate(state_dir, region_id, delays, seed, _checked_faults(faults), timing, log)
        return
    if region == ALL:
        raise typer.BadParameter("a node belongs to one region; name it", param_hint="--region")
    spec = parse_node_spec(
        node or "",
        region_id,
        zone,
        pool,
        cpu=cpu,
        memory=memory,
        gpu=gpu,
        labels=label,
        taints=taint,
    )
    _run_processes(state_dir, spec, timing, log)


def _simulate(
    state_dir: Path | None,
    region: RegionId,
    delays: Delays,
    seed: int,
    faults: Path | None,
    timing: Timing,
    log: EventLog,
) -> None:
    async def run(databases: Databases) -> None:
        def agent_of(region: RegionId) -> Agent:
            injected = Faults(faults, log)
            agent = Agent(
                databases,
                region,
                DeclaredNodes(databases, region, injected.is_lost),
                SimulatedDriver(delays, faults=injected, seed=seed),
                name=ActorId(f"agent:simulated/{region}"),
                log=log,
                timing=timing,
                logs_each=False,
                is_cut_off=injected.is_cut_off,
                unhealthy_devices=injected.unhealthy_devices,
            )
            injected.on_change = agent.look
            return agent

        await refuse_other_schema(databases)
        if region == ALL:
            await _run_until_stopped(host_every_region(databases, agent_of, log), log)
        else:
            await _refuse_unknown(databases, region)
            await _run_until_stopped(host_region(databases, region, agent_of, log), log)

    with_authority(state_dir, run)


def _run_processes(state_dir: Path | None, spec: NodeSpec, timing: Timing, log: EventLog) -> None:
    settings = load_settings(state_dir)

    async def run(databases: Databases) -> None:
        node_directory = NodeDirectory(settings.state_dir, spec.id)
        # An earlier agent may have left replicas running, which must not wait for the authority.
        if not node_directory.path.exists():
            await _refuse_unknown(databases, spec.region)
        with node_directory as directory:
            running = Agent(
                databases,
                spec.region,
                OwnNode(spec),
                ProcessDriver(directory.path, spec.region, log),
                name=ActorId(f"agent:{spec.id}"),
                log=log,
                timing=timing,
                leases=PersistentLeases(timing.trusted_seconds, directory, spec.region, spec.id),
                host=directory.host,
                unhealthy_devices=directory.unhealthy_devices,
            )
            await _run_until_stopped(running.run(), log)

    with_authority(state_dir, run)


def _checked_faults(path: Path | None) -> Path | None:
    try:
        if path is not None:
            read_faults(path)
    except FaultsError as error:
        raise typer.BadParameter(str(error), param_hint="--faults") from None
    return path


# ── running ─────────────────────────────────────────────────────────────────────────────────────


async def _refuse_unknown(databases: Databases, region: RegionId) -> None:
    """A misspelt region ends the command; an unreachable authority does not."""
    with suppress(AuthorityUnreachableError, TimeoutError):
        async with asyncio.timeout(REGION_CHECK_SECONDS):
            await read_region(databases, region)


async def _run_until_stopped(running: Coroutine[Any, Any, None], log: EventLog) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(running)

    def stop() -> None:
        task.cancel()
        sentence = f"it had not ended by itself within {GRACE_SECONDS} s"
        force_exit_after(GRACE_SECONDS, lambda: log("ended by force", reason=sentence))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        log("ended")
