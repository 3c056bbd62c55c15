"""Simulated nodes that are lost fall silent with all that runs there, and come back as asked."""

from pathlib import Path

from durable.agent.leases import Timing
from durable.agent.simulated.faults import Faults
from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion, node
from tests.agent.waiting import eventually

SHORT = Timing(lease_ttl_seconds=3)
LAPSED = (
    "SELECT node FROM regional.node_leases WHERE node = 'n1' AND expires_at < clock_timestamp()"
)


async def test_lost_nodes_fall_silent_until_the_fault_is_taken_away(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    file = tmp_path / "faults.yaml"
    await region.declare(node("n1"), node("n2"))
    agents.simulated(region, timing=SHORT, faults=Faults(file, agents.log))
    token = await region.run(0, on="n1")
    await region.until(token, "serving")
    file.write_text("[{kind: lost, region: us-*, node: n1}]")

    async def has_lapsed() -> bool:
        return bool(await region.ask(LAPSED))

    await eventually("its lease has lapsed", has_lapsed)
    await region.until_registered("n2")
    file.write_text("[]")
    await region.until_registered("n1")


def test_a_fault_loses_what_all_its_patterns_match(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("[{kind: lost, region: us-east, zone: b}, {kind: crash, node: n3}]")
    faults = Faults(file)
    assert faults.reread()
    assert faults.is_lost(node("n1", zone="b"))
    assert not faults.is_lost(node("n1", zone="a"))
    assert not faults.is_lost(node("n3", zone="a"))
