"""Replicas that the region does not know, and nodes that wait for them to end."""

from pathlib import Path

from durable.agent.leases import Timing
from durable.agent.process.launcher import launch
from durable.agent.process.replica_directory import ReplicaDirectory
from durable.agent.simulated.driver import SimulatedDriver
from durable.agent.simulated.faults import Faults
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import NodeId
from durable.model.placement.intents import ReleaseCause
from tests.agent.commands import directory_of, lives, number_in, shell
from tests.agent.conftest import INSTANTLY, Agents
from tests.agent.region import LiveRegion, node
from tests.agent.waiting import eventually
from tests.authority.world import API, EAST, RISK, T0

UNKNOWN = 99


async def test_a_process_that_the_region_does_not_know_is_ended_before_its_node_registers(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    spec = shell("echo $$ > pid; exec sleep 1000")
    stray = Assignment(
        region=EAST, token=UNKNOWN, node=NodeId("n1"), tenant=RISK, workload=API, generation=1,
        slot=0, attempt=1, bound_at=T0, devices=(), spec=spec,
    )  # fmt: skip
    directory = ReplicaDirectory(directory_of(tmp_path, UNKNOWN))
    assert directory.claim(stray, None)
    assert not directory.claim(stray, None), "a token is begun once"
    child = launch(stray, spec.run, directory)
    pid = await number_in(directory.work / "pid")

    agents.process(region, tmp_path)

    await region.until_registered()
    assert not lives(pid)
    child.wait()
    await eventually("it is closed", (directory.path / "closed").exists)


async def test_a_node_whose_stray_hangs_waits_and_its_neighbour_does_not(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("[{kind: hang_on_stop, node: n1}]")
    await region.declare(node("n1"), node("n2"))
    driver = SimulatedDriver(INSTANTLY, faults=Faults(file, agents.log))
    agents.simulated(region, driver, timing=Timing(lease_ttl_seconds=3))
    token = await region.run(0, on="n1")
    await region.until(token, "serving")
    await region.until_registered("n2")

    # Its lease is over for the authority, which gives the slot away; the agent learns of both.
    await region.ask(
        "UPDATE regional.node_leases SET expires_at = clock_timestamp() - interval '1 s',"
        " renewed_at = clock_timestamp() - interval '2 s' RETURNING node"
    )
    await region.release(token, 0, ReleaseCause.NODE_LOST)

    await region.until_registered("n2")
    assert await region.session("n1") == 0
    file.write_text("[]")
    await region.until_registered("n1")
