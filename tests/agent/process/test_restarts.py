"""Agents that end, cleanly or by SIGKILL at the worst moments: nothing is started twice."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable.agent.process.node_directory import NodeDirectory
from durable.failpoints import VARIABLE, Failpoint
from durable.model.ids import NodeId
from durable.model.placement.intents import ReleaseCause
from durable.state_dir.record import StackError
from tests.agent.agent_process import AgentProcesses, exit_code_of
from tests.agent.commands import directory_of, lives, number_in, shell
from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion
from tests.agent.waiting import eventually


@pytest.fixture
def processes(region: LiveRegion, agents: Agents, tmp_path: Path) -> Iterator[AgentProcesses]:
    """Beside `agents`, which also ends what replicas leave behind."""
    del agents
    running = AgentProcesses(region.url, tmp_path)
    yield running
    running.end_all()


def counted(root: Path) -> str:
    """Every start of a token leaves a line in the token's file."""
    return f"echo started >> {root}/starts-$DURABLE_TOKEN; echo $$ > pid; exec sleep 1000"


def starts(root: Path, token: int) -> int:
    file = root / f"starts-{token}"
    return len(file.read_text().splitlines()) if file.exists() else 0


# ── cleanly ─────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_comes_back_adopts_what_runs(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    agents.process(region, tmp_path)
    token = await region.run(0, shell(counted(tmp_path)))
    await region.until(token, "serving")
    await eventually("it has started", lambda: starts(tmp_path, token) == 1)
    pid = await number_in(directory_of(tmp_path, token) / "work" / "pid")
    session = await region.session()

    await agents.end("n1")
    assert lives(pid)
    agents.process(region, tmp_path)

    await region.until_registered(after=session)
    await region.until(token, "serving")
    assert lives(pid)
    assert starts(tmp_path, token) == 1


async def test_an_end_that_no_agent_saw_is_reported_by_the_next(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    agents.process(region, tmp_path)
    token = await region.run(0, shell("until test -e end; do sleep 0.05; done; exit 5"))
    await region.until(token, "serving")

    await agents.end("n1")
    directory = directory_of(tmp_path, token)
    (directory / "work" / "end").touch()
    await eventually("it has ended", (directory / "exit").exists)
    agents.process(region, tmp_path)

    assert "exit code 5" in await region.until(token, "failed")


async def test_what_died_without_a_word_has_failed_and_is_not_started_again(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    agents.process(region, tmp_path)
    token = await region.run(0, shell(counted(tmp_path)))
    await region.until(token, "serving")
    await eventually("it has started", lambda: starts(tmp_path, token) == 1)

    await agents.end("n1")
    leader = await number_in(directory_of(tmp_path, token) / "pid")
    os.killpg(leader, signal.SIGKILL)
    agents.process(region, tmp_path)

    assert "without an exit code" in await region.until(token, "failed")
    assert starts(tmp_path, token) == 1


async def test_a_replica_whose_directory_is_gone_is_not_started_again(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    agents.process(region, tmp_path)
    token = await region.run(0, shell(counted(tmp_path)))
    await region.until(token, "serving")
    await eventually("it has started", lambda: starts(tmp_path, token) == 1)

    await agents.end("n1")
    os.killpg(await number_in(directory_of(tmp_path, token) / "pid"), signal.SIGKILL)
    shutil.rmtree(directory_of(tmp_path, token))
    agents.process(region, tmp_path)

    assert "directory is gone" in await region.until(token, "failed")
    assert starts(tmp_path, token) == 1


async def test_one_node_has_one_agent(tmp_path: Path) -> None:
    node = NodeId("n1")
    with (
        NodeDirectory(tmp_path, node),
        pytest.raises(StackError, match="Another agent runs node n1"),
        NodeDirectory(tmp_path, node),
    ):
        pass
    with NodeDirectory(tmp_path, node):
        pass


async def test_answers_that_are_lost_cost_nothing_but_another_try(
    region: LiveRegion, agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = (
        Failpoint.AFTER_REGISTER,
        Failpoint.AFTER_SPAWN,
        Failpoint.BEFORE_OBSERVE,
        Failpoint.AFTER_OBSERVE,
    )
    armed = ",".join(f"{point}=lose:{tmp_path}/lost-{point}" for point in points)
    monkeypatch.setenv(VARIABLE, armed)
    agents.process(region, tmp_path)

    token = await region.run(0, shell(counted(tmp_path)))

    await region.until(token, "serving")
    await eventually("it has started", lambda: starts(tmp_path, token) > 0)
    assert starts(tmp_path, token) == 1
    for point in points:
        await eventually(f"{point} was reached", (tmp_path / f"lost-{point}").exists)


# ── by SIGKILL ──────────────────────────────────────────────────────────────────────────────────

AGENT_POINTS = (
    Failpoint.BEFORE_SPAWN,
    Failpoint.AFTER_SPAWN,
    Failpoint.BEFORE_OBSERVE,
    Failpoint.AFTER_OBSERVE,
    Failpoint.AFTER_REGISTER,
)


async def test_killed_anywhere_an_agent_starts_a_token_at_most_once(
    region: LiveRegion, processes: AgentProcesses, tmp_path: Path
) -> None:
    async def killed_at(number: int, point: Failpoint) -> None:
        node = f"n{number}"
        child = processes.start(node, f"{point}=kill:{tmp_path}/killed-{number}")
        token = await region.run(number, shell(counted(tmp_path)), on=node)
        assert await exit_code_of(child) == -signal.SIGKILL
        processes.start(node)
        if point is Failpoint.BEFORE_SPAWN:
            # Nobody can know that it was not started, so it counts as if it had been.
            await region.until(token, "failed")
            assert starts(tmp_path, token) == 0
        else:
            await region.until(token, "serving")
            await eventually("it has started", lambda: starts(tmp_path, token) > 0)
            assert starts(tmp_path, token) == 1

    async with asyncio.TaskGroup() as tasks:
        for number, point in enumerate(AGENT_POINTS):
            tasks.create_task(killed_at(number, point))


async def test_a_stop_goes_on_after_its_agent_was_killed(
    region: LiveRegion, processes: AgentProcesses, tmp_path: Path
) -> None:
    child = processes.start("n1")
    script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done"
    token = await region.run(0, shell(script, stop_grace="2s"))
    pid = await number_in(directory_of(tmp_path, token) / "work" / "pid")

    await region.evict(token)
    await eventually("it is asked to stop", (directory_of(tmp_path, token) / "stop").exists)
    child.kill()
    await exit_code_of(child)
    assert lives(pid)
    processes.start("n1")

    await region.until(token, "stopped")
    assert not lives(pid)


async def test_killed_again_and_again_it_never_starts_anything_twice(
    region: LiveRegion, processes: AgentProcesses, tmp_path: Path
) -> None:
    tokens: list[int] = []
    child = processes.start("n1")
    for slot in range(4):
        tokens.append(await region.run(slot, shell(counted(tmp_path))))
        await eventually("it is begun", directory_of(tmp_path, tokens[-1]).exists)
        child.kill()
        await exit_code_of(child)
        child = processes.start("n1")
    for token in tokens:
        await region.until(token, "serving", "failed")
        if (await region.observed(token))[0] == "serving":
            await eventually("it has started", lambda token=token: starts(tmp_path, token) > 0)
        assert starts(tmp_path, token) <= 1


async def test_an_agent_that_slept_through_its_lease_stops_what_was_given_away(
    region: LiveRegion, processes: AgentProcesses, tmp_path: Path
) -> None:
    child = processes.start("n1", lease=2)
    token = await region.run(0, shell(counted(tmp_path), on_disconnect="keep"))
    await region.until(token, "serving")
    pid = await number_in(directory_of(tmp_path, token) / "work" / "pid")
    session = await region.session()

    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)

    async def lease_is_over() -> bool:
        return await region.session() == 0

    await eventually("the lease is over", lease_is_over)
    await region.release(token, 0, ReleaseCause.NODE_LOST)
    assert lives(pid)
    os.kill(child.pid, signal.SIGCONT)

    await region.until_registered(after=session)
    assert not lives(pid)
