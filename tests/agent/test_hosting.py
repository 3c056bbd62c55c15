"""Regions that appear are hosted, and the command says what is wrong before it does anything."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from durable.agent.agent import Agent
from durable.agent.hosting import host_every_region
from durable.agent.nodes import DeclaredNodes
from durable.agent.simulated.driver import SimulatedDriver
from durable.authority.fleet.nodes import declare_nodes
from durable.cli.main import execute
from durable.model.ids import RegionId
from tests.agent.commands import directory_of, lives, number_in, shell
from tests.agent.conftest import INSTANTLY, Agents
from tests.agent.region import LiveRegion, node
from tests.authority.world import TEST, WEST

DURABLE = (sys.executable, "-c", "from durable.cli.main import run; run()")


async def test_a_region_that_is_added_later_is_hosted_too(
    region: LiveRegion, agents: Agents
) -> None:
    def agent_of(name: RegionId) -> Agent:
        return Agent(
            region.databases,
            name,
            DeclaredNodes(region.databases, name),
            SimulatedDriver(INSTANTLY),
            name=TEST,
            log=agents.log,
        )

    agents.run("all", host_every_region(region.databases, agent_of, agents.log))
    await region.declare(node("n1"))
    await region.until_registered("n1")

    await region.world.with_region(WEST)
    await declare_nodes(region.databases, WEST, [node("w1", region=WEST)], actor=TEST)

    await region.until_registered("w1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give either --simulated or --node"),
        (["--simulated", "--node", "n1"], "give either --simulated or --node"),
        (["--node", "n1"], "also needs --zone, --cpu, --memory"),
        (["--node", "N_1", "--zone", "a", "--cpu", "1", "--memory", "1Gi"], "N_1"),
        (["--node", "n1", "--zone", "a", "--cpu", "0.0005", "--memory", "1Gi"], "0.0005"),
        (["--node", "n1", "--zone", "a", "--cpu", "1", "--memory", "1"], "one of the units"),
        (
            ["--node", "n1", "--zone", "a", "--cpu", "1", "--memory", "1Gi", "--label", "x"],
            "KEY=VALUE",
        ),
        (
            ["--node", "n1", "--zone", "a", "--cpu", "1", "--memory", "1Gi", "--taint", "x=y"],
            "no-schedule",
        ),
        (["--simulated", "--lease", "0"], "--lease"),
        (["--simulated", "--start-delay", "-1"], "--start-delay"),
    ],
)
def test_invalid_input_is_refused_and_changes_nothing(
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DURABLE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    assert execute(["agent", "--region", "us-east", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_an_invalid_faults_file_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {kind: explode}")
    arguments = ["agent", "--region", "all", "--simulated", "--faults", str(faults)]
    assert execute(arguments) == 2
    assert "0.kind" in capsys.readouterr().err


async def test_on_sigterm_the_command_exits_cleanly_and_leaves_its_replicas(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    del agents  # which ends what is left behind
    child = await asyncio.create_subprocess_exec(
        *DURABLE, "agent", "--region", "us-east", "--node", "n1", "--zone", "a", "--cpu", "8",
        "--memory", "32Gi", "--label", "colour=blue", "--json",
        env={
            **os.environ,
            "DURABLE_DATABASE_URL": region.url,
            "DURABLE_STATE_DIR": str(tmp_path),
        },
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    token = await region.run(0, shell("echo $$ > pid; exec sleep 1000"))
    await region.until(token, "serving")
    pid = await number_in(directory_of(tmp_path, token) / "work" / "pid")

    child.terminate()
    _, printed = await child.communicate()

    assert child.returncode == 0, printed
    assert lives(pid)
    events = [json.loads(line)["event"] for line in printed.splitlines()]
    assert events[0] == "registered"
    assert events[-1] == "ended"
    rows = await region.ask("SELECT labels FROM regional.nodes WHERE node = 'n1'")
    assert rows[0][0] == {"colour": "blue", "driver": "process"}


async def test_a_region_that_does_not_exist_ends_the_command(
    region: LiveRegion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_DATABASE_URL", region.url)
    monkeypatch.setenv("DURABLE_STATE_DIR", str(tmp_path))
    arguments = ["agent", "--region", "nowhere", "--simulated"]
    assert await asyncio.to_thread(execute, arguments) == 1
