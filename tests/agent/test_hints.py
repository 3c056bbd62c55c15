"""What anybody may send to an agent is a hint, and ends nothing."""

from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion, node


async def test_a_malformed_notification_crashes_no_agent(
    region: LiveRegion, agents: Agents
) -> None:
    await region.declare(node("n1"))
    agents.simulated(region)
    session = await region.until_registered()
    for payload in ("nonsense", "us-east 1 x", ""):
        await region.ask("SELECT pg_notify('durable_regions', %s)", payload)

    token = await region.run(0)

    await region.until(token, "serving")
    assert await region.session() == session
    await agents.end("simulated")  # fails if the agent had ended by itself
