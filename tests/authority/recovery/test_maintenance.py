"""A region that an operator has marked is silent without being lost, and only for so long."""

from datetime import timedelta

import psycopg
import pytest

from durable.authority.audit.events import read_events
from durable.authority.operators.changes import add_operator
from durable.authority.recovery.fence import fence
from durable.authority.recovery.maintenance import begin_maintenance, end_maintenance
from durable.authority.recovery.region_facts import read_fact
from durable.model.ids import ActorId
from durable.model.operators.rights import OperatorKind
from durable.model.recovery.detection import LossKind
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from tests.authority.recovery.test_detection_controller import Watching, fell_silent, lives, world
from tests.authority.world import EAST, TEST, WEST, World

__all__ = ["world"]
HOUR = timedelta(hours=1)


async def mark(world: World, *, lasts: timedelta = HOUR, actor: ActorId = TEST) -> None:
    await begin_maintenance(world.databases, EAST, lasts=lasts, actor=actor, reason="new kernels")


async def ran_out(world: World, ago: str) -> None:
    """The mark began an hour before it ended by itself, so long ago."""
    assert world.databases.urls
    connected = await psycopg.AsyncConnection.connect(world.databases.urls[0])
    async with connected as connection:
        await connection.execute(
            "UPDATE global.regions SET maintenance = maintenance || jsonb_build_object("
            "'since', now() - CAST(%(ago)s AS interval) - interval '1h',"
            " 'until', now() - CAST(%(ago)s AS interval))",
            {"ago": ago},
        )


async def test_a_silent_region_in_maintenance_is_neither_suspected_nor_recovered(
    world: World,
) -> None:
    watching = Watching(world.databases)
    await lives(world, WEST, "w")
    await fell_silent(world, EAST, "e")
    await mark(world)
    for _ in range(2):
        verdicts = await watching.controller.once()
        assert verdicts[EAST].kind is LossKind.MAINTENANCE
    fact = await read_fact(world.databases, EAST)
    assert (fact.state, watching.begun) == (RegionState.OPEN, [])
    assert fact.seen is not None
    assert "by test: new kernels" in fact.seen.sentence
    assert await end_maintenance(world.databases, EAST, actor=TEST, reason="done")
    await watching.controller.once()
    assert [begun.region for begun in watching.begun] == [EAST]
    found, _ = await read_events(world.databases, target=f"region/{EAST}")
    events = [event.action for event in found]
    assert [one for one in events if "maintenance" in one] == [
        "begin maintenance",
        "end maintenance",
    ]


async def test_what_fell_silent_in_a_long_maintenance_is_seen_when_it_ends(world: World) -> None:
    """Nothing that was silent for so long would count as news otherwise."""
    watching = Watching(world.databases)
    await lives(world, WEST, "w")
    await fell_silent(world, EAST, "e", ago=timedelta(minutes=50))
    assert (await watching.controller.once())[EAST].kind is LossKind.NO_NODES
    await mark(world)
    await ran_out(world, "5 seconds")
    await watching.controller.once()
    assert [begun.region for begun in watching.begun] == [EAST]


@pytest.mark.parametrize("lasts", [timedelta(0), timedelta(hours=25), -HOUR])
async def test_a_maintenance_has_an_end_within_a_day(world: World, lasts: timedelta) -> None:
    with pytest.raises(RefusedError, match="at most 24h") as refused:
        await mark(world, lasts=lasts)
    assert refused.value.refusal.code is RefusalCode.INVALID
    assert (await read_fact(world.databases, EAST)).maintenance is None


async def test_a_mark_takes_a_right_and_a_region_that_is_not_fenced(world: World) -> None:
    stranger = ActorId("person:eve")
    await add_operator(
        world.databases, stranger, kind=OperatorKind.PERSON, actor=TEST, reason="a test"
    )
    with pytest.raises(RefusedError) as refused:
        await mark(world, actor=stranger)
    assert refused.value.refusal.code is RefusalCode.NOT_ALLOWED
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="lost")
    with pytest.raises(RefusedError) as late:
        await mark(world)
    assert late.value.refusal.code is RefusalCode.REGION_FENCED


async def test_a_mark_that_is_set_again_lasts_from_then_and_began_when_it_did(world: World) -> None:
    await mark(world)
    first = (await read_fact(world.databases, EAST)).current_maintenance
    await mark(world, lasts=HOUR * 2)
    second = (await read_fact(world.databases, EAST)).current_maintenance
    assert first is not None
    assert second is not None
    assert second.since == first.since
    assert second.until - first.until >= HOUR
    assert not await end_maintenance(world.databases, WEST, actor=TEST, reason="none there")
