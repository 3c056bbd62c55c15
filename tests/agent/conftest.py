"""Each test of an agent gets a region of its own, and agents that end with it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from durable.agent.agent import Agent
from durable.agent.hosting import DeclaredNodes
from durable.agent.pace import Pace
from durable.agent.simulated import Delays, SimulatedDriver
from durable.authority.connection import Databases
from tests.agent.region import LiveRegion
from tests.authority.world import EAST, TEST

INSTANTLY = Delays(0.0, 0.0, 0.0, 0.0, 0.0)


class Agents:
    """Runs agents in this process, and ends them by name or all at once."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.events: list[tuple[str, dict[str, Any]]] = []

    def log(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def start(self, name: str, agent: Agent) -> None:
        self._tasks[name] = asyncio.create_task(agent.run())

    async def end(self, name: str) -> None:
        task = self._tasks.pop(name)
        task.cancel()
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
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
        pace: Pace | None = None,
    ) -> None:
        databases = databases or region.databases
        agent = Agent(
            databases,
            EAST,
            DeclaredNodes(databases, EAST),
            driver or SimulatedDriver(INSTANTLY),
            name=TEST,
            log=self.log,
            pace=pace,
        )
        self.start("simulated", agent)


@pytest.fixture
async def region(database_url: str) -> AsyncIterator[LiveRegion]:
    async with Databases(database_url) as databases:
        yield LiveRegion(databases, database_url)


@pytest.fixture
async def agents(region: LiveRegion) -> AsyncIterator[Agents]:
    running = Agents()
    yield running
    await running.end_all()
