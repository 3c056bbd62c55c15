"""Faults that operators ask of simulated replicas while they run."""

import json
from pathlib import Path
from typing import Any

import pytest

from durable.agent.simulated.driver import SimulatedDriver
from durable.agent.simulated.faults import Faults, FaultsError, read_faults
from tests.agent.conftest import INSTANTLY, Agents
from tests.agent.region import LiveRegion, node
from tests.agent.waiting import eventually


class FaultsFile:
    """A file that an operator edits; each edit is whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, *faults: dict[str, Any]) -> None:
        aside = self.path.with_suffix(".new")
        aside.write_text(json.dumps(faults))
        aside.rename(self.path)


@pytest.fixture
async def faults(region: LiveRegion, agents: Agents, tmp_path: Path) -> FaultsFile:
    """The faults of a running simulation of n1 and n2; there are none yet."""
    file = FaultsFile(tmp_path / "faults.json")
    await region.declare(node("n1"), node("n2"))
    driver = SimulatedDriver(INSTANTLY, faults=Faults(file.path, agents.log))
    agents.simulated(region, driver)
    return file


async def in_force(agents: Agents, edits: int) -> None:
    def changed() -> bool:
        return sum(event == "faults changed" for event, _ in agents.events) >= edits

    await eventually("the agent has read the faults", changed)


async def test_what_fails_to_start_fails_on_the_named_node_alone(
    region: LiveRegion, agents: Agents, faults: FaultsFile
) -> None:
    faults.write({"kind": "fail_to_start", "node": "n1"})
    await in_force(agents, 1)
    assert "fail to start" in await region.until(await region.run(0, on="n1"), "failed")
    await region.until(await region.run(1, on="n2"), "serving")


async def test_a_crash_hits_what_runs_already(region: LiveRegion, faults: FaultsFile) -> None:
    token = await region.run()
    await region.until(token, "serving")
    faults.write({"kind": "crash", "workload": "risk/*"})
    assert "crash" in await region.until(token, "failed")


async def test_what_is_never_ready_becomes_ready_when_the_fault_is_taken_back(
    region: LiveRegion, agents: Agents, faults: FaultsFile
) -> None:
    faults.write({"kind": "never_ready"})
    await in_force(agents, 1)
    token = await region.run()
    await region.until(token, "running")
    faults.write()
    await region.until(token, "serving")


async def test_what_hangs_on_stop_stops_when_the_fault_is_taken_back(
    region: LiveRegion, agents: Agents, faults: FaultsFile
) -> None:
    faults.write({"kind": "hang_on_stop"}, {"kind": "crash", "workload": "other/*"})
    await in_force(agents, 1)
    token = await region.run()
    await region.until(token, "serving")
    await region.evict(token)
    probe = await region.run(1)
    await region.until(probe, "serving")
    assert (await region.observed(token))[0] == "serving"
    faults.write()
    await region.until(token, "stopped")


def test_an_invalid_faults_file_is_refused_with_a_location_and_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("- {kind: crash, after_seconds: 1.5}\n")
    agents = Agents()
    faults = Faults(file, agents.log)
    assert faults.reread()

    for wrong in ("- {kind: explode}", "- {kind: crash, when: now}", "{", "kind: crash"):
        file.write_text(wrong)
        with pytest.raises(FaultsError, match=file.name):
            read_faults(file)
        assert not faults.reread()

    assert [event for event, _ in agents.events].count("faults ignored") == 4
    assert read_faults(tmp_path / "absent") == ()
