"""One agent in place of thousands."""

from collections.abc import Sequence

from durable.authority.slots.ownership import SlotRegistry
from durable.model.placement.intents import Bind, Granted, Reserve, Start
from durable.model.resources import Resources
from durable.model.states import ObservedState
from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion, node, workload
from tests.agent.waiting import eventually
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK

NODES = 3_000
REPLICAS = 400
SMALL = Resources.of(100, 64)


async def test_one_agent_hosts_thousands_of_nodes(region: LiveRegion, agents: Agents) -> None:
    await region.declare(*(node(f"n{number}") for number in range(NODES)))
    agents.simulated(region)
    await eventually("every node is registered", lambda: is_counted(region, "node_leases", NODES))

    await place_many(region)

    await eventually("every replica serves", lambda: serving(region))


async def place_many(region: LiveRegion) -> None:
    registry = SlotRegistry(region.databases, RISK, API, FIRST_DIVISION)
    await registry.assign(range(1_000, 1_000 + REPLICAS), EAST, transfer="many")
    await region.request(workload())
    world = region.world
    world.now = await region.now()
    slots = range(1_000, 1_000 + REPLICAS)
    reserves = [world.reserve(slot, f"n{slot}", resources=SMALL) for slot in slots]
    held = await sent(region, reserves)
    claims = list(zip(held, slots, strict=True))
    await sent(region, [world.bind(token, slot) for token, slot in claims])
    await sent(region, [world.start(token, slot) for token, slot in claims])


async def sent(region: LiveRegion, intents: Sequence[Reserve | Bind | Start]) -> list[int]:
    outcomes = await region.world.send(*intents)
    assert all(isinstance(outcome, Granted) for outcome in outcomes), outcomes[0]
    return [outcome.token for outcome in outcomes if isinstance(outcome, Granted)]


async def is_counted(region: LiveRegion, table: str, count: int) -> bool:
    return (await region.ask(f"SELECT count(*) FROM regional.{table}"))[0][0] == count


async def serving(region: LiveRegion) -> bool:
    rows = await region.ask(
        "SELECT count(*) FROM regional.observations WHERE state = %s", ObservedState.SERVING.value
    )
    return rows[0][0] == REPLICAS
