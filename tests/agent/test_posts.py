"""One agent stands for the declared nodes of a region; its successor need not wait."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from durable.agent.agent import Agent
from durable.agent.hosting import DeclaredNodes, host_every_region, host_region
from durable.agent.simulated import SimulatedDriver
from durable.model.ids import RegionId
from tests.agent.conftest import INSTANTLY, Agents
from tests.agent.region import LiveRegion, node
from tests.agent.waiting import eventually
from tests.authority.world import EAST, TEST

DURABLE = (sys.executable, "-c", "from durable.cli.main import run; run()")
HOLDERS = """
    SELECT pid{} FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
     WHERE l.locktype = 'advisory' AND a.datname = current_database()
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


async def test_a_second_agent_is_refused_and_the_first_keeps_its_session(
    region: LiveRegion, tmp_path: Path
) -> None:
    await region.declare(node("n1"))
    first = await command(region, tmp_path)
    session = await region.until_registered()

    second = await command(region, tmp_path)
    said = (await second.communicate())[1].decode()

    assert second.returncode == 1
    assert f"The declared nodes of us-east are kept by durable agent, pid {first.pid} on" in said
    assert "end it first" in said
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

    def was_told() -> bool:
        told = [fields.get("error", "") for event, fields in agents.events if event == "trouble"]
        return any("are kept by durable agent" in sentence for sentence in told)

    await eventually("it was told who hosts the region", was_told)
    assert await region.session() == session
    await agents.end("first")
    await region.until_registered(after=session)


async def test_a_post_whose_connection_was_lost_is_taken_again(
    region: LiveRegion, agents: Agents
) -> None:
    async def holders() -> set[int]:
        return {pid for (pid,) in await region.ask(HOLDERS.format(""))}

    async def is_held() -> bool:
        return bool(await holders())

    agents.run(
        "first",
        host_region(region.databases, EAST, simulating(region, agents), agents.log),
    )
    await eventually("it holds the post", is_held)
    before = await holders()
    await region.ask(HOLDERS.format(", pg_terminate_backend(pid)"))

    async def is_held_anew() -> bool:
        return bool(await holders() - before)

    await eventually("another connection holds it", is_held_anew)
    assert [event for event, _ in agents.events].count("hosting") == 1
