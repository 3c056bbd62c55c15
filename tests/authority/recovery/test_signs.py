"""What leases show of a region, and suspicions that outlive whoever had them."""

from datetime import UTC, datetime, timedelta

from durable.authority.audit.events import read_events
from durable.authority.recovery.fence import fence
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.signs import read_node_signs
from durable.authority.recovery.suspicions import clear_suspicion, record_suspicion, suspicion_of
from durable.model.recovery.detection import LossKind, LossVerdict, RegionSigns, Suspicion
from durable.model.states import RegionState
from tests.authority.world import EAST, T0, TEST, World, node, seconds

FOR_EVER = 10.0**9


async def test_live_and_lapsed_leases_are_counted_by_zone(world: World) -> None:
    await world.with_region()
    await world.with_nodes(node("a1"), node("a2"), node("b1", zone="b"))
    # Before these tests began, by the database's own clock.
    past = World(world.databases, now=T0 - timedelta(days=365 * 20))
    await past.with_nodes(node("b2", zone="b"))
    signs = await read_node_signs(world.databases, EAST, FOR_EVER)
    assert [(zone.zone, zone.live, zone.lapsed) for zone in signs.zones] == [
        ("a", 2, 0),
        ("b", 1, 1),
    ]
    assert signs.silent_nodes == ("b2",)


async def test_a_loss_is_as_old_as_the_silence_of_those_that_are_silent(world: World) -> None:
    """A few that live on do not make it younger."""
    await world.with_region()
    await world.with_nodes(node("n1"))
    past = World(world.databases, now=datetime.now(UTC) - timedelta(seconds=90))
    await past.with_nodes(node("n2"), node("n3"), lease_seconds=30)
    signs = await read_node_signs(world.databases, EAST, 300.0)
    assert signs.silent_seconds is not None
    assert 90 <= signs.silent_seconds < 300


async def test_what_fell_silent_long_ago_is_not_news(world: World) -> None:
    await world.with_region()
    past = World(world.databases, now=T0 - timedelta(days=365 * 20))
    await past.with_nodes(node("n1"))
    assert (await read_node_signs(world.databases, EAST, 300.0)).zones == ()


def suspicion(epoch: int = 1) -> Suspicion:
    verdict = LossVerdict(
        region=EAST,
        kind=LossKind.REGION,
        sentence="0 of 9 nodes have a live lease.",
        signs=RegionSigns(region=EAST, epoch=epoch),
    )
    return Suspicion(
        region=EAST, epoch=epoch, since=seconds(15), lost_at=seconds(0), verdict=verdict
    )


async def test_a_suspicion_is_found_again_by_whoever_looks_next(world: World) -> None:
    await world.with_region()
    assert await record_suspicion(world.databases, suspicion(), TEST)
    assert await record_suspicion(world.databases, suspicion(), TEST)
    fact = await read_fact(world.databases, EAST)
    assert (fact.state, fact.since) == (RegionState.SUSPECTED, seconds(0))
    assert suspicion_of(fact) == suspicion()
    events, _ = await read_events(world.databases, last=100)
    assert [one.action for one in events].count("suspect region") == 1


async def test_a_suspicion_that_is_over_is_cleared_once(world: World) -> None:
    await world.with_region()
    await record_suspicion(world.databases, suspicion(), TEST)
    for _ in range(2):
        await clear_suspicion(world.databases, EAST, TEST, "its nodes are back")
    fact = await read_fact(world.databases, EAST)
    assert (fact.state, suspicion_of(fact)) == (RegionState.OPEN, None)
    events, _ = await read_events(world.databases, last=100)
    assert [one.action for one in events].count("clear suspicion") == 1


async def test_a_fenced_region_is_past_being_suspected(world: World) -> None:
    await world.with_region()
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="lost")
    assert not await record_suspicion(world.databases, suspicion(), TEST)
    await clear_suspicion(world.databases, EAST, TEST, "its nodes are back")
    assert (await read_fact(world.databases, EAST)).state is RegionState.FENCED
