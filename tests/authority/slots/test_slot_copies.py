"""Handing a region its copies: new ones at once, old ones in the region's order."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import psycopg

from durable.authority.slots.assignment import SlotCopies, copy_slots
from tests.authority.invariants import copies_of
from tests.authority.waiting import until_waiting
from tests.authority.world import API, EAST, RISK, World

LOCK = "SELECT FROM regional.regions WHERE region = %s FOR NO KEY UPDATE"


@contextlib.asynccontextmanager
async def gate(world: World) -> AsyncGenerator[psycopg.AsyncConnection]:
    """The region's lock, held as a commit holds it."""
    url = world.databases.url_of(EAST)
    async with await psycopg.AsyncConnection.connect(url) as held:
        await held.execute(LOCK, [EAST])
        yield held


async def owned(world: World) -> set[int]:
    return {slot[2] for slot, region in await copies_of(world.databases) if region == EAST}


async def test_slots_that_nobody_ever_held_do_not_wait_for_a_commit(ready_world: World) -> None:
    async with gate(ready_world):
        async with asyncio.timeout(10):
            await copy_slots(ready_world.databases, EAST, [SlotCopies(RISK, API, {100: 1, 101: 1})])
        assert {100, 101} <= await owned(ready_world)


async def test_a_slot_that_changes_hands_waits_for_the_commit_that_may_have_read_it(
    ready_world: World,
) -> None:
    await copy_slots(ready_world.databases, EAST, [SlotCopies(RISK, API, {100: 1})])
    again = [SlotCopies(RISK, API, {100: 2, 101: 1})]
    async with gate(ready_world) as held:
        copying = asyncio.create_task(copy_slots(ready_world.databases, EAST, again))
        await until_waiting(held)
        assert 101 not in await owned(ready_world), "all of it or nothing"
    await copying
    assert {100, 101} <= await owned(ready_world)
