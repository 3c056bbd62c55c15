"""A reservation whose lease ran out is freed though its placement is gone, and never before."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from durable.authority.reads.claims import read_claims
from durable.authority.recovery.fence import fence
from durable.authority.sides import Regional
from durable.controllers import reaper
from durable.controllers.reaper import ReaperController
from durable.model.refusal import RefusalCode
from tests.authority.invariants import assert_promises_hold
from tests.authority.world import EAST, TEST, World


@pytest.fixture
async def regional(ready_world: World) -> AsyncIterator[Regional]:
    async with Regional(ready_world.databases, EAST, max_waiters=1) as regional:
        await regional.cache.wait_ready(30)
        yield regional


@pytest.fixture
def world(ready_world: World) -> World:
    """The commits of this world were made an hour ago, and then its placements were terminated."""
    ready_world.now = datetime.now(UTC) - timedelta(hours=1)
    return ready_world


async def live(world: World) -> list[int]:
    return [one.slot for one in await read_claims(world.databases, EAST)]


async def test_what_lapsed_is_freed_and_recorded_as_the_reapers_work(
    world: World, regional: Regional
) -> None:
    token = (await world.granted(world.reserve(0))).token
    assert await ReaperController(regional).once() == 1
    assert await live(world) == []
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        query = text(
            "SELECT from_state, to_state, actor, database_role FROM regional.transitions"
            " WHERE token = :token ORDER BY ordinal DESC LIMIT 1"
        )
        recorded = tuple((await connection.execute(query, {"token": token})).one())
    assert recorded == ("held", "expired", "controller:reaper", "durable_commit")
    assert await ReaperController(regional).once() == 0
    await assert_promises_hold(world.databases)


async def test_what_is_leased_bound_or_only_just_lapsed_is_left_alone(
    world: World, regional: Regional, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "GRACE_SECONDS", 1_800.0)
    bound = (await world.granted(world.reserve(0))).token
    await world.granted(world.bind(bound, 0))
    await world.granted(world.reserve(1, lease_ttl_seconds=3600 - 5))
    world.now = datetime.now(UTC)
    await world.granted(world.reserve(2, lease_ttl_seconds=3600))
    assert await ReaperController(regional).once() == 0
    assert await live(world) == [0, 1, 2]


async def test_a_placement_that_comes_later_finds_it_done(world: World, regional: Regional) -> None:
    token = (await world.granted(world.reserve(0))).token
    await ReaperController(regional).once()
    await world.granted(world.expire(token))
    late = (await world.granted(world.reserve(1))).token
    await ReaperController(regional).once()
    assert await world.refused(world.bind(late, 1)) is RefusalCode.WRONG_STATE


async def test_an_earlier_refusal_does_not_keep_it_for_ever(
    world: World, regional: Regional
) -> None:
    token = (await world.granted(world.reserve(0))).token
    assert await world.refused(world.expire(token)) is RefusalCode.LEASE_ACTIVE
    assert await ReaperController(regional).once() == 1
    assert await live(world) == []


async def test_so_many_at_once_and_no_more(
    world: World, regional: Regional, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "MAX_PER_ROUND", 2)
    for slot in range(3):
        await world.granted(world.reserve(slot))
    assert [await ReaperController(regional).once() for _ in range(3)] == [2, 1, 0]


async def test_after_a_fence_it_goes_on_under_the_new_epoch(
    world: World, regional: Regional
) -> None:
    await world.granted(world.reserve(0))
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
    freed = [await ReaperController(regional).once() for _ in range(2)]
    assert sum(freed) == 1
    assert await live(world) == []
