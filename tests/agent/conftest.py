"""Each test of an agent gets a region of its own, and agents that end with it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from durable.agent.agent import Agent
from durable.agent.leases import Timing
from durable.agent.nodes import DeclaredNodes, OwnNode
from durable.agent.process.driver import ProcessDriver
from durable.agent.process.killing import kill
from durable.agent.process.node_directory import NodeDirectory, PersistentLeases
from durable.agent.process.replica_directory import ReplicaDirectory
from durable.agent.simulated.driver import Delays, SimulatedDriver
from durable.agent.simulated.faults import Faults
from durable.authority.db.connection import Databases
from durable.authority.migrations import upgrade
from durable.model.ids import NodeId
from tests.agent.region import LiveRegion
from tests.authority.world import EAST, TEST, labels, node
from tests.conftest import Copies

INSTANTLY = Delays(0.0, 0.0, 0.0, 0.0, 0.0)


class Agents:
    """Runs agents in this process, and ends them by name or all at once."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._directories: dict[str, NodeDirectory] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []

    def log(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def start(self, name: str, agent: Agent) -> None:
        self.run(name, agent.run())

    def run(self, name: str, running: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(running)

    async def end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if name in self._directories:
            self._directories.pop(name).__exit__(None, None, None)
        if not isinstance(outcome, asyncio.CancelledError):
            raise AssertionError(f"{name} had ended with {outcome!r}")

    async def end_all(self) -> None:
        for name in list(self._tasks):
            await self.end(name)

    def simulated(
        self,
        region: LiveRegion,
        driver: SimulatedDriver | None = None,
        *,
        databases: Databases | None = None,
        timing: Timing | None = None,
        faults: Faults | None = None,
    ) -> None:
        databases = databases or region.databases
        faults = faults or Faults()
        agent = Agent(
            databases,
            EAST,
            DeclaredNodes(databases, EAST, faults.is_lost),
            driver or SimulatedDriver(INSTANTLY, faults=faults),
            name=TEST,
            log=self.log,
            timing=timing,
            is_cut_off=faults.is_cut_off,
            unhealthy_devices=faults.unhealthy_devices,
        )
        faults.on_change = agent.look
        self.start("simulated", agent)

    def process(
        self,
        region: LiveRegion,
        state_dir: Path,
        *,
        name: str = "n1",
        databases: Databases | None = None,
        timing: Timing | None = None,
        gpus: int = 0,
    ) -> None:
        """An agent of the process driver; its node is held until the agent is ended."""
        timing = timing or Timing()
        directory = NodeDirectory(state_dir, NodeId(name)).__enter__()
        self._directories[name] = directory
        agent = Agent(
            databases or region.databases,
            EAST,
            OwnNode(node(name, gpus=gpus, labels=labels(driver="process"))),
            ProcessDriver(directory.path, EAST, self.log),
            name=TEST,
            log=self.log,
            timing=timing,
            leases=PersistentLeases(timing.trusted_seconds, directory, EAST, NodeId(name)),
            host=directory.host,
            unhealthy_devices=directory.unhealthy_devices,
        )
        self.start(name, agent)


@pytest.fixture(scope="session")
def region_template(copies: Copies, template: str) -> str:
    """The name of a database with the region as `LiveRegion.furnish` makes it, without nodes."""
    name = copies.make(template)
    url = copies.url(name)

    async def furnish() -> None:
        async with Databases(url) as databases:
            await LiveRegion(databases, url).furnish()

    asyncio.run(furnish())
    return name


@pytest.fixture
def east_url(copies: Copies) -> str:
    """A database of us-east alone."""
    url = copies.url(copies.make("template1"))
    upgrade(url, serves_global=False)
    return url


@pytest.fixture
async def region(copies: Copies, region_template: str) -> AsyncIterator[LiveRegion]:
    """us-east without nodes, one tenant with room, many slots."""
    with copies.lend(region_template) as url:
        async with Databases(url) as databases:
            region = LiveRegion(databases, url)
            yield region
            await region.close()


@pytest.fixture
async def agents(tmp_path: Path) -> AsyncIterator[Agents]:
    """Ends them afterwards, and every process that their replicas left running."""
    running = Agents()
    yield running
    await running.end_all()
    _end_replicas(tmp_path)


def _end_replicas(root: Path) -> None:
    for path in root.glob("**/agents/*/*/assignment.json"):
        directory = ReplicaDirectory(path.parent)
        kill(directory.path, directory.leader)


@pytest.fixture
async def process_region(region: LiveRegion, agents: Agents, tmp_path: Path) -> LiveRegion:
    """The region with a running agent of the process driver for node n1."""
    agents.process(region, tmp_path)
    return region
