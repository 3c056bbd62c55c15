"""A job of real processes: an exit code that is fatal ends a slot at once, any other is retried."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from durable.agent.agent import Agent
from durable.agent.leases import Timing
from durable.agent.nodes import OwnNode
from durable.agent.process.driver import ProcessDriver
from durable.agent.process.node_directory import NodeDirectory, PersistentLeases
from durable.authority.reads.census import take_census
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import ActorId, NodeId
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until

# Two, because a slot does not go back at once to the node where it failed.
MACHINES = (NodeId("machine-0"), NodeId("machine-1"))
# Slot 0 is done, slot 1 ends for good, and slot 2 needs a second try.
SCRIPT = """
case $DURABLE_SLOT in
  0) exit 0 ;;
  1) exit 64 ;;
  2) test -e {marker} && exit 0; touch {marker}; exit 65 ;;
esac
"""


@asynccontextmanager
async def machine(plane: Plane, state_dir: Path, name: NodeId) -> AsyncGenerator[None]:
    """An agent of the process driver with a node of its own."""
    spec = NodeSpec.model_validate(
        {
            "id": name,
            "region": EAST,
            "zone": "east-a",
            "pool": "machines",
            "capacity": {"cpu": 4, "memory": "8Gi"},
            "devices": (),
            "labels": {"driver": "process"},
            "taints": (),
            "dedicated_to": None,
        }
    )
    timing = Timing()
    with NodeDirectory(state_dir, name) as directory:
        agent = Agent(
            plane.databases,
            EAST,
            OwnNode(spec),
            ProcessDriver(directory.path, EAST, lambda *_, **__: None),
            name=ActorId(f"agent:{name}"),
            log=lambda *_, **__: None,
            timing=timing,
            leases=PersistentLeases(timing.trusted_seconds, directory, EAST, name),
            host=directory.host,
        )
        task = asyncio.create_task(agent.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def are_live(plane: Plane) -> bool:
    [region] = (await take_census(plane.databases)).regions
    return any(pool.pool == "machines" and pool.live == len(MACHINES) for pool in region.pools)


async def test_real_processes_are_judged_by_their_exit_codes(plane: Plane, tmp_path: Path) -> None:
    await (await plane.load(small_fleet())).work()
    script = SCRIPT.format(marker=tmp_path / "marker")
    job = manifest(
        "score",
        replicas=3,
        kind="job",
        requirements={"labels": {"driver": "process"}},
        job={"fatal_exit_codes": [64], "parallelism": 2},
        run={"command": ["/bin/sh", "-c", script]},
    )
    async with AsyncExitStack() as machines:
        for name in MACHINES:
            await machines.enter_async_context(machine(plane, tmp_path, name))
        await until(lambda: are_live(plane), "the machines are registered")
        await plane.durable.apply(job, request_id="run")
        status = await plane.durable.wait("risk", "score", until="complete")
    assert (status.phase, status.completed, status.given_up, status.failures) == ("failed", 2, 1, 2)
    assert sorted(await plane.started("score")) == [0, 1, 2, 2]
    await plane.no_invariant_is_broken()
