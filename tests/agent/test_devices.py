"""Agents report which devices are not healthy, and when they are again."""

from pathlib import Path

from durable.agent.leases import Timing
from durable.agent.process.node_directory import UNHEALTHY_DEVICES
from durable.agent.simulated.faults import Faults
from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion, node
from tests.agent.waiting import eventually

REPORTED = "SELECT node, unhealthy_devices FROM regional.nodes WHERE unhealthy_devices <> '{}'"


async def become(region: LiveRegion, expected: list[tuple[str, list[str]]]) -> None:
    async def is_so() -> bool:
        return list(await region.ask(REPORTED)) == expected

    await eventually(f"{expected} is known", is_so)


async def test_a_broken_simulated_device_is_reported_until_the_fault_is_taken_away(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    file = tmp_path / "faults.yaml"
    await region.declare(node("n1", gpus=2), node("n2", gpus=2), node("n3"))
    agents.simulated(region, faults=Faults(file, agents.log))
    await region.until_registered("n1")
    file.write_text("[{kind: unhealthy_device, node: n1, device: gpu-1}]")
    await become(region, [("n1", ["gpu-1"])])
    file.write_text("[]")
    await become(region, [])


async def test_what_a_machine_says_of_its_devices_is_reported_also_by_its_next_agent(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    file = tmp_path / "agents" / "n1" / UNHEALTHY_DEVICES
    file.parent.mkdir(parents=True)
    file.write_text("gpu-0\ngpu-9\n")
    soon = Timing(resync_seconds=0.2)
    agents.process(region, tmp_path, timing=soon, gpus=2)
    await become(region, [("n1", ["gpu-0"])])
    await agents.end("n1")
    file.unlink()
    agents.process(region, tmp_path, timing=soon, gpus=2)
    await become(region, [])
