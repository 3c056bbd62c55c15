"""One agent hosts the declared nodes of a region; its successor need not wait."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from durable.agent import hosting
from durable.agent.agent import Agent
from durable.agent.hosting import host_every_region, host_region
from durable.agent.nodes import DeclaredNodes
from durable.agent.simulated.driver import SimulatedDriver
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.agent_lock import hold_agent_lock, is_agent_lock_free
from durable.model.ids import RegionId
from tests.agent.conftest import INSTANTLY, Agents
from tests.agent.region import LiveRegion, node
from tests.agent.waiting import DEADLINE_SECONDS, eventually
from tests.authority.world import EAST, TEST

DURABLE = (sys.executable, "-c", "from durable.cli.main import run; run()")
HOLDERS = """
    SELECT a.pid{} FROM regional.agent_locks AS a JOIN pg_stat_activity AS s USING (pid)
"""


async def command(region: LiveRegion, state_dir: Path) -> asyncio.subprocess.Process:
    environment = {"DURABLE_DATABASE_URL": region.url, "DURABLE_STATE_DIR": str(state_dir)}
    return await asyncio.create_subprocess_exec(
        *(*DURABLE, "agent", "--region", "us-east", "--simulated"),
        env={**os.environ, **environment},
        stderr=asyncio.subprocess.PIPE,
    )


def simulating(region: LiveRegion, agents: Agents) -> Callable[[RegionId], Agent]:
    def agent_of(name: RegionId) -> Agent:
        nodes, driver = DeclaredNodes(region.databases, name), SimulatedDriver(INSTANTLY)
        return Agent(region.databases, name, nodes, driver, name=TEST, log=agents.log)

    return agent_of


def is_logged(agents: Agents, words: str) -> bool:
    errors = [fields["reason"] for event, fields in agents.events if event == "error"]
    return any(words in sentence for sentence in errors)


def times_hosted(agents: Agents) -> int:
    return [event for event, _ in agents.events].count("hosting")


@asynccontextmanager
async def another(region: LiveRegion) -> AsyncGenerator[None]:
    """Somebody else hosts the region meanwhile."""
    async with hold_agent_lock(region.databases, EAST):
        await region.ask("UPDATE regional.agent_locks SET holder = 'another' RETURNING 1")
        yield


async def test_a_second_agent_is_refused_and_the_first_keeps_its_session(
    region: LiveRegion, tmp_path: Path
) -> None:
    await region.declare(node("n1"))
    first = await command(region, tmp_path)
    session = await region.until_registered()

    second = await command(region, tmp_path)
    said = (await second.communicate())[1].decode()

    assert second.returncode == 1
    assert f"The declared nodes of us-east are hosted by durable agent, pid {first.pid} on" in said
    assert "stop it first" in said
    assert await region.session() == session
    first.kill()
    await first.communicate()


async def test_the_successor_of_a_killed_agent_does_not_wait_for_its_lease(
    region: LiveRegion, tmp_path: Path
) -> None:
    await region.declare(node("n1"))
    first = await command(region, tmp_path)
    session = await region.until_registered()
    first.kill()
    await first.communicate()

    second = await command(region, tmp_path)
    await region.until_registered(after=session)

    # One after the other: the lease of the first had not been given up in between.
    assert await region.session() == session + 1
    second.terminate()
    await second.communicate()
    assert second.returncode == 0


async def test_an_agent_of_all_regions_takes_over_when_the_other_one_ends(
    region: LiveRegion, agents: Agents
) -> None:
    await region.declare(node("n1"))
    of = (region.databases, EAST, simulating(region, agents), agents.log)
    agents.run("first", host_region(*of))
    session = await region.until_registered()
    agents.run("all", host_every_region(region.databases, simulating(region, agents), agents.log))

    kept = "are hosted by durable agent"
    await eventually("it was logged who hosts the region", lambda: is_logged(agents, kept))
    assert await region.session() == session
    await agents.end("first")
    await region.until_registered(after=session)


class Clock:
    """Shows what it is set to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


async def test_a_lock_that_was_held_for_long_is_taken_again_at_once(
    region: LiveRegion, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(hosting, "time", clock)
    monkeypatch.setattr(hosting, "LOCK_RETRY_SECONDS", 3600.0)

    async def holders() -> set[int]:
        return {pid for (pid,) in await region.ask(HOLDERS.format(""))}

    async def is_held() -> bool:
        return bool(await holders())

    agents.run(
        "first",
        host_region(region.databases, EAST, simulating(region, agents), agents.log),
    )
    await eventually("it holds the lock", is_held)
    before = await holders()
    clock.now = 3600.0
    await region.ask(HOLDERS.format(", pg_terminate_backend(a.pid)"))

    async def is_held_anew() -> bool:
        return bool(await holders() - before)

    await eventually("another connection holds it", is_held_anew)
    assert times_hosted(agents) == 1


async def test_an_agent_on_standby_leaves_the_lock_to_one_that_only_lost_its_connection(
    region: LiveRegion, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding = AsyncExitStack()
    await holding.enter_async_context(another(region))
    looks: list[bool] = []

    async def look_while_the_holder_is_away(databases: Databases, name: RegionId) -> bool:
        if len(looks) == 1:
            await holding.aclose()
            await eventually("it is free", lambda: is_agent_lock_free(databases, name))
        looks.append(await is_agent_lock_free(databases, name))
        if len(looks) == 2:
            await holding.enter_async_context(another(region))
        return looks[-1]

    monkeypatch.setattr(hosting, "REGIONS_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(hosting, "is_agent_lock_free", look_while_the_holder_is_away)
    agents.run("all", host_every_region(region.databases, simulating(region, agents), agents.log))
    await eventually("it looked again", lambda: len(looks) >= 4)
    assert looks[:4] == [False, True, False, False]
    assert times_hosted(agents) == 0

    await holding.aclose()
    await eventually("it took over", lambda: times_hosted(agents) == 1)


async def test_an_agent_that_lost_its_lock_to_another_gives_way_and_goes_on_standby(
    region: LiveRegion, agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosting, "REGIONS_CHECK_SECONDS", 0.05)
    await region.declare(node("n1"))
    agents.run(
        "first",
        host_region(region.databases, EAST, simulating(region, agents), agents.log),
    )
    session = await region.until_registered()
    async with await psycopg.AsyncConnection.connect(region.url) as thief:
        (life_sign,) = await one(thief, "SELECT 7 FROM pg_advisory_lock(7)")
        await one(thief, "SELECT 1 FROM regional.agent_locks FOR UPDATE")
        await region.ask(HOLDERS.format(", pg_terminate_backend(a.pid)"))
        take = "UPDATE regional.agent_locks SET pid = pg_backend_pid(), life_sign = %s,"
        await one(thief, f"{take} holder = 'another' RETURNING 1", life_sign)
        await thief.commit()
        await eventually("it gave way", lambda: is_logged(agents, "are hosted by another"))
        assert times_hosted(agents) == 1

    await region.until_registered(after=session)
    assert times_hosted(agents) == 2


async def one(connection: psycopg.AsyncConnection, statement: str, *values: object) -> Any:
    return await (await connection.execute(statement.encode(), values)).fetchone()


async def test_an_agent_takes_its_own_lock_again_while_the_server_counts_its_lost_connection(
    region: LiveRegion,
) -> None:
    async with (
        hold_agent_lock(region.databases, EAST) as lost,
        hold_agent_lock(region.databases, EAST, lost=lost),
    ):
        assert not await is_agent_lock_free(region.databases, EAST)


@pytest.mark.parametrize("role", ["durable_reader", "durable_operator"])
async def test_no_other_role_takes_or_keeps_the_lock(region: LiveRegion, role: str) -> None:
    async with (
        hold_agent_lock(region.databases, EAST) as lock,
        await psycopg.AsyncConnection.connect(region.url, autocommit=True) as other,
    ):
        await other.execute(f"SET ROLE {role}".encode())
        for statement in (
            "UPDATE regional.agent_locks SET pid = pg_backend_pid()",
            "SELECT FROM regional.agent_locks FOR SHARE",
            "DELETE FROM regional.agent_locks",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await other.execute(statement.encode())
        # Anybody may wait for the number that they see, and have it once its holder is gone.
        queued = asyncio.create_task(other.execute("SELECT pg_advisory_lock(%s)", [lock.life_sign]))
        await asyncio.sleep(0)
        await region.ask(HOLDERS.format(", pg_terminate_backend(a.pid)"))
        await queued
        async with hold_agent_lock(region.databases, EAST):
            pass


@pytest.mark.parametrize("error", [OSError("the disk"), AuthorityError("the disk")], ids=repr)
async def test_a_failing_agent_is_not_mistaken_for_a_lost_lock(
    region: LiveRegion, agents: Agents, error: Exception
) -> None:
    class Failing(Agent):
        def __init__(self) -> None:
            pass

        async def run(self) -> None:
            raise error

    with pytest.raises(type(error), match=r"^the disk$"):
        async with asyncio.timeout(DEADLINE_SECONDS):
            await host_region(region.databases, EAST, lambda _: Failing(), agents.log)


async def test_errors_of_the_lock_holder_pass_through_unchanged(region: LiveRegion) -> None:
    with pytest.raises(OSError, match=r"^the disk$"):
        async with hold_agent_lock(region.databases, EAST):
            raise OSError("the disk")
