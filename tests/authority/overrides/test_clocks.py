"""A region obeys an override for as long as was left of it then, and by its own clock."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from durable.authority.db.connection import Databases
from durable.authority.overrides.copies import copy_override
from durable.authority.reads.invariants import violations_everywhere
from durable.model.refusal import RefusalCode
from durable.model.time_left import TimeLeft
from tests.authority.moved_clock import move_clock, stop_clock
from tests.authority.overrides.asking import change, give_keys, in_force
from tests.authority.recovery.conftest import apart
from tests.authority.world import EAST, T0, WEST, World, node

__all__ = ["apart"]

HOUR = timedelta(hours=1)
HALF_AN_HOUR = timedelta(minutes=30)
ZONE = {"region": "us-west", "zone": "a"}


@pytest.mark.parametrize(
    ("ends_in", "seconds"), [(HOUR, 3600.0), (timedelta(), 0.0), (-HOUR, -3600.0)]
)
def test_what_is_left_ends_as_much_later_by_any_other_clock(
    ends_in: timedelta, seconds: float
) -> None:
    left = TimeLeft.of(T0 + ends_in, T0)
    assert left.seconds == seconds
    assert left.is_over is (seconds <= 0)
    other = T0 + timedelta(days=400)
    assert left.counted_from(other) == other + ends_in


class TwoClocks:
    """The global side by the real clock, and us-west by one that stands still elsewhere."""

    def __init__(self, world: World, west: datetime) -> None:
        self.world, self.west = replace(world, region=WEST, now=west), west

    @property
    def databases(self) -> Databases:
        return self.world.databases

    def move(self, by: timedelta) -> None:
        self.west += by
        self.world.now = self.west
        move_clock(self.databases.url_of(WEST), self.west)


@pytest.fixture(params=[HOUR, -HOUR], ids=["ahead", "behind"])
async def clocks(apart: World, request: pytest.FixtureRequest) -> AsyncIterator[TwoClocks]:
    west = datetime.now(UTC) + request.param
    await give_keys(apart.databases)
    url, west_url = apart.databases.url_of(EAST), apart.databases.url_of(WEST)
    stop_clock(west_url, west)
    async with Databases(url, {WEST: west_url}) as databases:
        clocks = TwoClocks(replace(apart, databases=databases), west)
        await clocks.world.with_nodes(node("w1", region=WEST), lease_seconds=86_400, region=WEST)
        await clocks.world.with_slots(region=WEST)
        yield clocks


def copied_for(clocks: TwoClocks) -> timedelta:
    """For how long the region obeys its copy, by its own clock."""
    with psycopg.connect(clocks.databases.url_of(WEST)) as owner:
        row = owner.execute("SELECT expires_at FROM regional.overrides").fetchone()
    assert row is not None
    return row[0] - clocks.west


async def refusal(clocks: TwoClocks, slot: int = 0) -> RefusalCode:
    return await clocks.world.refused(clocks.world.reserve(slot, "w1"))


async def test_a_region_obeys_for_what_is_left_by_its_own_clock(clocks: TwoClocks) -> None:
    await in_force(clocks.databases, WEST, "avoid-zone", ZONE)
    assert HALF_AN_HOUR - timedelta(minutes=1) < copied_for(clocks) <= HALF_AN_HOUR
    assert await refusal(clocks) is RefusalCode.AVOIDED
    clocks.move(HALF_AN_HOUR - timedelta(minutes=1))
    assert await refusal(clocks) is RefusalCode.AVOIDED
    clocks.move(timedelta(minutes=1))
    await clocks.world.granted(clocks.world.reserve(1, "w1"))
    assert await violations_everywhere(clocks.databases) == []


async def test_an_extension_is_counted_from_the_clock_of_the_region(clocks: TwoClocks) -> None:
    await in_force(clocks.databases, WEST, "avoid-zone", ZONE)
    longer = await change(clocks.databases, "extend", by=HALF_AN_HOUR)
    await copy_override(clocks.databases, WEST, longer.target)
    assert HOUR - timedelta(minutes=1) < copied_for(clocks) <= HOUR
