"""Simulated nodes: what they pretend, and the faults that operators may ask of them."""

from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion, node


async def test_a_declared_node_registers_and_serves_what_is_bound_to_it(
    region: LiveRegion, agents: Agents
) -> None:
    await region.declare(node("n1"))
    agents.simulated(region)

    token = await region.run()

    await region.until(token, "serving")
    await region.evict(token)
    assert "asked by a test" in await region.until(token, "stopped")


async def test_a_node_that_is_declared_later_is_hosted_too(
    region: LiveRegion, agents: Agents
) -> None:
    await region.declare(node("n1"))
    agents.simulated(region)
    await region.until_registered("n1")

    await region.declare(node("n1"), node("n2"))

    await region.until(await region.run(on="n2"), "serving")
