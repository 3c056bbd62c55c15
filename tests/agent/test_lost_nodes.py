"""Simulated nodes that are lost or cut off fall silent, and come back as asked."""

from pathlib import Path

from durable.agent.driver import StopOrder
from durable.agent.leases import Timing
from durable.agent.simulated.driver import SimulatedDriver
from durable.agent.simulated.faults import Faults
from durable.authority.fleet.assignments import Assignment
from tests.agent.commands import shell
from tests.agent.conftest import INSTANTLY, Agents
from tests.agent.region import LiveRegion, node
from tests.agent.waiting import eventually

SHORT = Timing(lease_ttl_seconds=3)
LAPSED = (
    "SELECT node FROM regional.node_leases WHERE node = 'n1' AND expires_at < clock_timestamp()"
)


class Started(SimulatedDriver):
    """Remembers what was started and stopped."""

    def __init__(self, faults: Faults) -> None:
        super().__init__(INSTANTLY, faults=faults)
        self.started: list[int] = []
        self.stopped: list[int] = []

    async def start(self, assignment: Assignment) -> None:
        self.started.append(assignment.token)
        await super().start(assignment)

    async def stop(self, token: int, order: StopOrder) -> None:
        self.stopped.append(token)
        await super().stop(token, order)


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


async def test_nodes_that_are_cut_off_run_on_but_for_what_must_not_without_a_lease(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    file = tmp_path / "faults.yaml"
    await region.declare(node("n1"), node("n2"))
    faults = Faults(file, agents.log)
    driver = Started(faults)
    agents.simulated(region, driver, timing=SHORT, faults=faults)
    stops = await region.run(0, shell("true", on_disconnect="stop"), on="n1")
    keeps = await region.run(1, shell("true", on_disconnect="keep"), on="n1", generation=2)
    for token in (stops, keeps):
        await region.until(token, "serving")
    session = await region.session()
    file.write_text("[{kind: cut_off, node: n1}]")

    async def has_lapsed() -> bool:
        return bool(await region.ask(LAPSED))

    await eventually("its lease has lapsed", has_lapsed)
    await eventually("what must not run has ended", lambda: driver.stopped == [stops])
    await region.until_registered("n2")
    file.write_text("[]")
    await region.until_registered("n1", after=session)
    assert "could not renew its lease" in await region.until(stops, "failed")
    await region.until(keeps, "serving")
    assert driver.stopped == [stops]
    assert driver.started == [stops, keeps]


def test_a_fault_loses_what_all_its_patterns_match(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("[{kind: lost, region: us-east, zone: b}, {kind: crash, node: n3}]")
    faults = Faults(file)
    assert faults.reread()
    assert faults.is_lost(node("n1", zone="b"))
    assert not faults.is_lost(node("n1", zone="a"))
    assert not faults.is_lost(node("n3", zone="a"))
    assert not faults.is_cut_off(node("n1", zone="b"))
