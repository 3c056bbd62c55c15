"""PostgreSQL is killed under a stream of intents: what was acknowledged is there, once."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from durable.authority.commit.regional_commit import GroupCommit
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.fleet.node_sessions import register_nodes
from durable.authority.migrations import upgrade
from durable.authority.reads.invariants import violations_everywhere
from durable.model.placement.intents import Granted, Refused, Reserve
from durable.model.resources import Capacity
from tests.authority.world import EAST, World, node
from tests.chaos.servers import PostgresServer
from tests.conftest import seed_operators

pytestmark = pytest.mark.server

SLOTS = 400
DEADLINE_SECONDS = 300
PAUSE_SECONDS = 0.05


@pytest.fixture
async def server() -> AsyncIterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="durable-chaos-") as folder:
        server = PostgresServer(Path(folder) / "postgres")
        try:
            yield server
        finally:
            server.stop()


async def acknowledged(commits: GroupCommit, intent: Reserve) -> Granted | Refused:
    """Does as a worker does: without an answer it sends the same intent again."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            with suppress(AuthorityUnreachableError):
                return await commits.submit(intent)
            # Until the server has answered again, it is refused at once.
            await asyncio.sleep(PAUSE_SECONDS)


async def test_nothing_acknowledged_is_lost_and_nothing_happens_twice(
    server: PostgresServer,
) -> None:
    upgrade(server.url)
    seed_operators(server.url)
    async with Databases(server.url) as databases:
        world = World(databases)
        await world.with_region()
        await world.with_tenant()
        await world.with_slots(SLOTS)
        big = node(capacity=Capacity(cpu_millis=10_000_000, memory_mib=10_000_000))
        await register_nodes(databases, EAST, [big], epoch=1, lease_ttl_seconds=3600)

        async with GroupCommit(databases, EAST) as commits:
            answers: dict[int, Granted | Refused] = {}
            killed = asyncio.Event()

            async def reserve(slot: int) -> None:
                answers[slot] = await acknowledged(commits, world.reserve(slot))
                if len(answers) == SLOTS // 10 and not killed.is_set():
                    killed.set()
                    server.kill()
                    await asyncio.to_thread(server.restart)

            # A few at a time, so that the kill falls into the middle of the stream.
            limit = asyncio.Semaphore(20)

            async def limited(slot: int) -> None:
                async with limit:
                    await reserve(slot)

            await asyncio.gather(*(limited(slot) for slot in range(SLOTS)))
            assert killed.is_set()
            before = dict(answers)
            again = [await acknowledged(commits, world.reserve(slot)) for slot in range(SLOTS)]

        assert again == [before[slot] for slot in range(SLOTS)], "every outcome is the first one"
        tokens = {answer.token for answer in again if isinstance(answer, Granted)}
        granted = [answer for answer in again if isinstance(answer, Granted)]
        assert len(tokens) == len(granted) > 0
        assert await violations_everywhere(databases) == []
