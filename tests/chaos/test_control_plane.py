"""Servers and agents are killed under placements: nothing is lost, nothing runs twice."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from durable.authority.db.errors import AuthorityError
from durable.model.states import BindingState
from durable.state_dir.record import StackError
from tests.chaos.conftest import World
from tests.workflows.plane import Plane, manifest, until
from tests.workflows.processes import AGENT, WORKER, Process, process
from tests.workflows.serving_log import ServingLog

pytestmark = pytest.mark.server

WORKLOADS = [f"api-{number}" for number in range(6)]


async def apply_all(plane: Plane) -> None:
    for name in WORKLOADS:
        await plane.durable.apply(manifest(name, replicas=3), request_id=name)


async def everything_serves_once(plane: Plane) -> None:
    async def serves() -> bool:
        bindings = await plane.bindings()
        return len(bindings) == 3 * len(WORKLOADS) and all(
            binding.state is BindingState.SERVING for binding in bindings.values()
        )

    await until(serves, "every slot serves", seconds=180)
    for name in WORKLOADS:
        assert (await plane.durable.wait("risk", name, within_seconds=180)).serving == 3
    await plane.no_invariant_is_broken()


async def test_temporal_killed_with_placements_in_flight(world: World) -> None:
    plane = world.plane
    with process(plane.settings, AGENT), process(plane.settings, WORKER):
        await plane.durable.apply(manifest(WORKLOADS[0], replicas=3), request_id=WORKLOADS[0])
        applying = plane.background(apply_all(plane))
        world.temporal.kill()
        await world.temporal.start()
        await applying
        await everything_serves_once(plane)


async def test_postgres_killed_with_placements_in_flight(world: World) -> None:
    plane = world.plane
    with process(plane.settings, AGENT), process(plane.settings, WORKER):
        await plane.durable.apply(manifest(WORKLOADS[0], replicas=3), request_id=WORKLOADS[0])
        applying = plane.background(apply_all(plane))
        world.postgres.kill()
        world.postgres.restart()
        await applying
        await everything_serves_once(plane)


@pytest.mark.soak
async def test_real_processes_are_started_once_whatever_is_killed(
    world: World, tmp_path: Path
) -> None:
    plane = world.plane
    starts = tmp_path / "starts"
    command = ["/bin/sh", "-c", f"echo $DURABLE_SLOT $DURABLE_TOKEN >> {starts}; exec sleep 600"]
    node = (
        "agent", "--node", "real-1", "--region", "east", "--zone", "east-a", "--cpu", "4",
        "--memory", "8Gi",
    )  # fmt: skip
    real = manifest(
        "real", replicas=3, requirements={"labels": {"driver": "process"}}, run={"command": command}
    )
    with process(plane.settings, node) as agent, process(plane.settings, WORKER) as worker:

        async def admitted() -> bool:
            try:
                await plane.durable.apply(real, request_id="real")
            except Exception:  # the node has not registered yet
                return False
            return True

        await until(admitted, "the node is there")
        await plane.durable.wait("risk", "real", within_seconds=180)
        agent.kill()
        worker.kill()
        agent.start()
        worker.start()
        await plane.durable.scale("risk", "real", 4)
        assert (await plane.durable.wait("risk", "real", within_seconds=180)).serving == 4
        lines = starts.read_text().splitlines()
        bindings = await plane.bindings()
        assert sorted(lines) == sorted(f"{b.slot} {b.token}" for b in bindings.values())
        await plane.durable.delete("risk", "real")
        await plane.durable.wait("risk", "real", until="deleted", within_seconds=180)
    await plane.no_invariant_is_broken()


QUICKLY = (*WORKER, "--grace", "2")
# Far less than a worker takes that waits for the database.
ENDS_WITHIN_SECONDS = 15.0
WAITS_FOR_A_LOCK = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


async def ends_in_its_time(worker: Process) -> None:
    async def ended() -> bool:
        return worker.exit_code is not None

    worker.terminate()
    await until(ended, "the worker has ended", seconds=ENDS_WITHIN_SECONDS)


async def test_a_worker_ends_in_its_time_while_a_lock_or_the_database_hangs(world: World) -> None:
    plane = world.plane
    with process(plane.settings, AGENT), process(plane.settings, QUICKLY) as worker:
        await plane.durable.apply(manifest("api", replicas=1), request_id="api")
        await plane.durable.wait("risk", "api", within_seconds=180)
        async with (
            await psycopg.AsyncConnection.connect(world.postgres.url) as other,
            await psycopg.AsyncConnection.connect(world.postgres.url, autocommit=True) as looking,
        ):
            await other.execute("SELECT FROM regional.regions FOR UPDATE")
            scaling = plane.background(plane.durable.scale("risk", "api", 2))

            async def waits() -> bool:
                return bool(await (await looking.execute(WAITS_FOR_A_LOCK)).fetchall())

            await until(waits, "a commit waits for the lock", seconds=60)
            await ends_in_its_time(worker)
        worker.start()
        await scaling
        assert (await plane.durable.wait("risk", "api", within_seconds=180)).serving == 2

        world.postgres.freeze()
        try:
            await ends_in_its_time(worker)
        finally:
            world.postgres.thaw()
        worker.start()
        await plane.durable.scale("risk", "api", 3)
        assert (await plane.durable.wait("risk", "api", within_seconds=180)).serving == 3


@pytest.mark.soak
async def test_every_server_killed_in_the_middle_of_a_rollout(world: World) -> None:
    """At each pause point something is killed while the rollout goes on to the next."""
    plane = world.plane
    log = ServingLog(plane)
    with process(plane.settings, AGENT), process(plane.settings, WORKER) as worker:
        await plane.durable.place(_version(1), request_id="one")
        await plane.durable.apply(_version(2), request_id="two")
        for point, kill in enumerate((world.temporal.kill, world.postgres.kill, worker.kill), 1):
            await until(lambda n=point: _has_replaced(plane, n), f"{point} are replaced")
            promoting = plane.background(_promoted(plane, point))
            kill()
            if kill == world.temporal.kill:
                await world.temporal.start()
            elif kill == world.postgres.kill:
                world.postgres.restart()
            else:
                worker.start()
            await promoting
        status = await plane.durable.wait("risk", "api", within_seconds=180)
        assert (status.generation, status.updated, status.serving) == (2, 4, 4)
        await plane.no_invariant_is_broken()
    assert log.fewest(4) >= 3


def _version(number: int) -> dict[str, Any]:
    run = {"environment": {"VERSION": str(number)}}
    rollout = {"bake": None, "pauses": [1, 2, 3], "max_surge": 1}
    return manifest(replicas=4, run=run, rollout=rollout)


async def _has_replaced(plane: Plane, count: int) -> bool:
    bindings = (await plane.bindings()).values()
    new = [one for one in bindings if one.generation == 2 and one.slot < 4]
    return len(new) == count and all(one.state is BindingState.SERVING for one in new)


async def _promoted(plane: Plane, point: int) -> None:
    """As a client that was not answered in time does: sends the same request again."""
    async with asyncio.timeout(180):
        while True:
            with suppress(StackError, AuthorityError):
                await plane.durable.promote("risk", "api", request_id=f"promote-{point}")
                return
