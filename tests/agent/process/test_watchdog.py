"""What must stop without a lease is gone before its slot may run elsewhere, without an agent."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable.agent.driver import FENCED
from durable.agent.process.launcher import SOURCE
from durable.agent.process.replica_directory import ReplicaDirectory
from durable.model.placement.intents import ReleaseCause
from tests.agent.agent_process import AgentProcesses
from tests.agent.commands import directory_of, is_written, lives, number_in, shell
from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion
from tests.agent.waiting import eventually

# On a busy machine an agent misses the renewals of a shorter one: what must stop without a lease is
# then not even started. Two seconds of it, the most there are, are for killing.
LEASE_SECONDS = 10
# The generations of what must stop, which begins again where it was stopped too early.
FIRST_OF_N1, FIRST_OF_N2 = 2, 100
WAITS = "echo $$ > pid; (setsid sleep 1000 & echo $! > escaped) 3>&-; exec sleep 1000"


@pytest.fixture
def processes(region: LiveRegion, agents: Agents, tmp_path: Path) -> Iterator[AgentProcesses]:
    """Beside `agents`, which also ends what replicas leave behind."""
    del agents
    running = AgentProcesses(region.url, tmp_path)
    yield running
    running.end_all()


async def run_what_must_stop(
    region: LiveRegion, state_dir: Path, generation: int, on: str = "n1"
) -> tuple[int, Path, list[int]]:
    """A token in slot 0 that runs, its directory of work, and the pids of its processes.

    An agent of a busy machine may miss its renewals. What must stop without a lease has then ended,
    or was not started, and runs again in the next generation.
    """
    token = await region.run(0, shell(WAITS, on_disconnect="stop"), on=on, generation=generation)
    work = directory_of(state_dir, token, on) / "work"
    files = [work / name for name in ("pid", "escaped")]

    async def has_ended() -> bool:
        return (await region.observed(token))[0] in ("failed", "stopped")

    async def runs_or_has_ended() -> bool:
        return all(map(is_written, files)) or await has_ended()

    await eventually(f"{token} runs, or has ended", runs_or_has_ended)
    if await has_ended():
        await region.release(token, 0, ReleaseCause.STOPPED, generation=generation)
        return await run_what_must_stop(region, state_dir, generation + 1, on)
    return token, work, [await number_in(file) for file in files]


def watchdogs(directory: Path) -> list[int]:
    found: list[int] = []
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_bytes().decode().split("\0")
        except (OSError, UnicodeDecodeError):
            continue
        if str(directory) in command and "-S" in command and lives(int(process.name)):
            found.append(int(process.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
async def test_never_two_of_a_slot_when_its_agent_is_killed_or_hangs(
    region: LiveRegion, processes: AgentProcesses, tmp_path: Path, number: signal.Signals
) -> None:
    agent = processes.start("n1", lease=LEASE_SECONDS)
    processes.start("n2")
    keeps = await region.run(1, shell(WAITS, on_disconnect="keep"))
    kept_pid = await number_in(directory_of(tmp_path, keeps) / "work" / "pid")
    await region.until_registered("n2")
    stops, work, pids = await run_what_must_stop(region, tmp_path, FIRST_OF_N1)
    generation = (await region.binding(stops)).generation

    assert agent.pid is not None
    os.kill(agent.pid, number)

    await region.until_lapsed()
    # From here on the authority may give the slot to another node.
    assert [pid for pid in pids if lives(pid)] == []
    assert lives(kept_pid), "it did not ask for this"
    await region.release(stops, 0, ReleaseCause.NODE_LOST, generation=generation)
    _, _, (successor, _) = await run_what_must_stop(region, tmp_path, FIRST_OF_N2, on="n2")

    if number is signal.SIGSTOP:
        os.kill(agent.pid, signal.SIGCONT)
        await region.until_registered()
        assert [pid for pid in pids if lives(pid)] == []
    assert lives(successor)
    await eventually("its watchdog has ended", lambda: not watchdogs(work.parent))


async def test_the_next_agent_reports_why_the_watchdog_stopped_it(
    region: LiveRegion, processes: AgentProcesses, tmp_path: Path
) -> None:
    agent = processes.start("n1", lease=LEASE_SECONDS)
    token, _, (pid, _) = await run_what_must_stop(region, tmp_path, FIRST_OF_N1)
    agent.kill()
    await eventually("it is gone", lambda: not lives(pid))

    processes.start("n1")

    assert "could not renew its lease" in await region.until(token, "failed")


async def test_a_watchdog_ends_with_its_replica_and_not_before(
    process_region: LiveRegion, tmp_path: Path
) -> None:
    region = process_region
    token = await region.run(0, shell(WAITS, on_disconnect="stop"))
    await region.until(token, "serving")
    directory = directory_of(tmp_path, token)
    await number_in(directory / "work" / "pid")
    assert len(watchdogs(directory)) == 1

    await region.evict(token)

    await region.until(token, "stopped")
    await eventually("its watchdog has ended", lambda: not watchdogs(directory))


@pytest.mark.parametrize("content", [None, "nonsense", json.dumps({"boot": "", "until": 1.0})])
def test_without_a_lease_nothing_is_started(tmp_path: Path, content: str | None) -> None:
    directory, lease = tmp_path / "replica", tmp_path / "lease-us-east"
    directory.mkdir()
    if content is not None:
        lease.write_text(content)
    program = "from durable.agent.process.watchdog import main; main()"
    command = [
        sys.executable,
        "-S",
        "-E",
        "-c",
        f"import sys; sys.path[0] = {str(SOURCE)!r}; {program}",
    ]
    ended = subprocess.run(
        [*command, str(directory), str(lease), FENCED.model_dump_json()], check=False
    )
    assert ended.returncode == 1
    assert ReplicaDirectory(directory).stop_order()[0] == FENCED
