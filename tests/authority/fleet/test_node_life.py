"""Nodes become unknown and lost by their leases, and ready when they are back."""

from durable.authority.cache.region_read import read_whole
from durable.authority.fleet.node_life import NodeMoves, judge_nodes
from durable.authority.fleet.nodes import declare_nodes
from durable.authority.recovery.fence import fence
from durable.model.refusal import RefusalCode
from durable.model.resources import Resources
from tests.authority.invariants import assert_promises_hold
from tests.authority.world import EAST, TEST, World, node, seconds

GRACE = 30.0


async def judge(world: World, at: float) -> NodeMoves:
    return await judge_nodes(world.databases, EAST, grace_seconds=GRACE, now=seconds(at))


async def state_of(world: World, name: str = "n1") -> str:
    whole = await read_whole(world.databases, EAST)
    return next(str(one.state) for one in whole.nodes if one.node == name)


async def capacity_of(world: World) -> int:
    whole = await read_whole(world.databases, EAST)
    return whole.room[0]


async def test_a_silent_node_becomes_unknown_then_lost_and_ready_when_it_registers(
    ready_world: World,
) -> None:
    world = ready_world
    before = await capacity_of(world)
    assert await judge(world, 599) == NodeMoves()
    assert (await judge(world, 600)).unknown == ["n1"]
    assert await capacity_of(world) == before - 8000, "what is silent gives nothing"
    assert await judge(world, 629) == NodeMoves()
    assert (await judge(world, 630)).lost == ["n1"]
    assert await capacity_of(world) == before - 8000
    assert await judge(world, 9_999) == NodeMoves()
    world.now = seconds(10_000)
    await world.with_nodes()
    assert await state_of(world) == "ready"
    assert await capacity_of(world) == before
    await assert_promises_hold(world.databases)


async def test_what_silent_nodes_hold_takes_nothing_from_those_that_live(
    ready_world: World,
) -> None:
    """And recovery keeps what it was promised, of what lives."""
    world = ready_world
    await world.running(0, resources=Resources.of(6_000, 1_024))
    world.now = seconds(300)
    await world.with_nodes(node("n2"))
    await world.with_headroom(Resources.of(2_000, 1_024))
    assert await capacity_of(world) == 8_000
    assert (await judge(world, 600)).unknown == ["n1"]
    assert await capacity_of(world) == 6_000
    world.now = seconds(601)
    big = world.reserve(1, node="n2", resources=Resources.of(7_000, 1_024))
    assert await world.refused(big) is RefusalCode.HEADROOM_RESERVED
    fits = world.reserve(1, node="n2", attempt=2, resources=Resources.of(6_000, 1_024))
    assert (await world.granted(fits)).node == "n2"
    await assert_promises_hold(world.databases)


async def test_a_node_that_was_renewed_at_the_last_moment_is_ready_again(
    ready_world: World,
) -> None:
    world = ready_world
    assert (await judge(world, 600)).unknown == ["n1"]
    # As if the renewal had been on its way while the node was judged.
    assert (await judge(world, 599)).ready == ["n1"]


async def test_a_node_of_an_older_epoch_is_not_made_ready(ready_world: World) -> None:
    world = ready_world
    await judge(world, 600)
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="a test")
    assert await judge(world, 599) == NodeMoves()
    assert await state_of(world) == "unknown"


async def test_a_declared_node_without_an_agent_is_unknown_and_never_lost(
    ready_world: World,
) -> None:
    world = ready_world
    await declare_nodes(world.databases, EAST, [node("n2")], actor=TEST)
    assert (await judge(world, 0)).unknown == ["n2"]
    assert await judge(world, 300) == NodeMoves()
