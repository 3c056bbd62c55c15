"""Simulated nodes: what they pretend, and the faults that operators may ask of them."""

from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion, node, workload
from tests.authority.world import labels

JOB = workload(kind="job")


async def test_a_declared_node_registers_and_serves_what_is_bound_to_it(
    region: LiveRegion, agents: Agents
) -> None:
    await region.declare(node("n1"))
    agents.simulated(region)

    token = await region.run()

    await region.until(token, "serving")
    await region.evict(token)
    assert "asked by a test" in await region.until(token, "stopped")


async def test_a_job_ends_by_itself_with_exit_code_0(region: LiveRegion, agents: Agents) -> None:
    await region.declare(node("n1"))
    agents.simulated(region)
    assert "exit code 0" in await region.until(await region.run(0, JOB), "stopped")


async def test_a_node_that_is_declared_later_is_hosted_and_a_process_node_never(
    region: LiveRegion, agents: Agents
) -> None:
    await region.declare(node("n1"), node("real", labels=labels(driver="process")))
    agents.simulated(region)
    await region.until_registered("n1")

    await region.declare(node("n2", labels=labels(colour="blue")))

    await region.until(await region.run(on="n2"), "serving")
    assert await region.session("real") == 0


async def test_an_agent_that_comes_back_finds_its_simulated_replicas_as_they_were(
    region: LiveRegion, agents: Agents
) -> None:
    await region.declare(node("n1"))
    agents.simulated(region)
    serving = await region.run(0)
    ended = await region.run(1, JOB, generation=2)
    await region.until(serving, "serving")
    await region.until(ended, "stopped")
    session = await region.session()

    await agents.end("simulated")
    agents.simulated(region)

    await region.until_registered(after=session)
    await region.evict(serving)
    await region.until(serving, "stopped")
    # What has ended was not begun again: the end is still the first one's.
    rows = await region.ask("SELECT session FROM regional.observations WHERE token = %s", ended)
    assert rows[0][0] == session
