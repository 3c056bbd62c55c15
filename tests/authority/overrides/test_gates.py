"""A commit lets an override pass the gates that the policy in force in its region lists."""

from datetime import datetime

import pytest

from durable.authority.fleet.cordons import write_cordons
from durable.authority.policies.regions import enter_region, leave_region
from durable.model.ids import NodeId
from durable.model.overrides.effects import Gate
from durable.model.placement.intents import AnyIntent, Refused
from durable.model.refusal import RefusalCode
from durable.model.states import PolicyState
from tests.authority.overrides.asking import give_keys, in_force
from tests.authority.policies.world import everywhere, order, published
from tests.authority.world import EAST, TEST, World, node

SPREAD_ONLY = (Gate.SPREAD,)


@pytest.fixture
async def world(ready_world: World) -> World:
    """Node n1 is cordoned, and two people have let the tenant's work pass the cordon."""
    world = ready_world
    world.now = datetime.now().astimezone()
    await give_keys(world.databases)
    await world.with_nodes(node("n1"))
    async with world.databases.at_region(EAST, "durable_operator").begin() as connection:
        await write_cordons(connection, EAST, [NodeId("n1")], reason="fan", actor=TEST)
    tenant, effect = {"tenant": "risk"}, {"gates": ["cordon"]}
    await in_force(world.databases, EAST, "break-glass", tenant, effect=effect)
    return world


async def code(world: World, intent: AnyIntent) -> RefusalCode | None:
    (found,) = await world.send(intent)
    return found.refusal.code if isinstance(found, Refused) else None


async def test_a_gate_that_the_next_policy_closes_is_closed_to_what_was_approved_before(
    world: World,
) -> None:
    reserved = await world.granted(world.reserve(0, "n1"))
    bound = (await world.granted(world.reserve(1, "n1"))).token
    await world.granted(world.bind(bound, 1))
    await everywhere(world, overridable_gates=SPREAD_ONLY)
    under_new = world.reserve(2, "n1", policy_revision=2)
    for refused in (world.bind(reserved.token, 0), world.start(bound, 1), under_new):
        assert await code(world, refused) is RefusalCode.NODE_CORDONED


async def test_a_gate_is_open_again_after_the_policy_that_closed_it_was_rolled_back(
    world: World,
) -> None:
    await everywhere(world, overridable_gates=SPREAD_ONLY)
    closed = world.reserve(0, "n1", policy_revision=2)
    assert await code(world, closed) is RefusalCode.NODE_CORDONED
    await leave_region(world.databases, EAST, await order(world, "rollback", signed=True))
    assert await code(world, world.reserve(0, "n1", attempt=2)) is None


async def test_the_canary_says_which_gates_are_open_while_there_is_one(world: World) -> None:
    await published(world, overridable_gates=SPREAD_ONLY)
    promoted = await order(world, "promote")
    assert await code(world, world.reserve(0, "n1")) is None, "nothing is in force yet"
    await enter_region(world.databases, EAST, promoted, PolicyState.CANARY)
    assert await code(world, world.reserve(1, "n1")) is RefusalCode.NODE_CORDONED
    await leave_region(world.databases, EAST, await order(world, "rollback"))
    assert await code(world, world.reserve(1, "n1", attempt=2)) is None
