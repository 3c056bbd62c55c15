"""A region takes from each division of a workload all or nothing, and never an older one's."""

import asyncio
from datetime import datetime

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.queue.requests import read_request, write_requests
from durable.authority.slots.assignment import SlotCopies, copy_slots
from durable.authority.slots.shares import (
    Publication,
    PublishedShare,
    ShareWriter,
    open_shares,
    publish,
)
from durable.model.ids import WorkloadName
from durable.model.refusal import RefusalCode
from durable.model.resources import Resources
from durable.model.states import RequestState
from durable.model.work.share import DesiredShare
from durable.model.work.workload import WorkloadSpec
from tests.authority.invariants import copies_of
from tests.authority.queue.test_requests import request
from tests.authority.world import API, EAST, RISK, WEST, World

SPEC = WorkloadSpec(replicas=2, resources=Resources.of(1000, 512))


def division(revision: int, *generations: int, floor: int | None = None) -> Publication:
    """What a division writes: shares of these generations, and a floor if it changes."""
    share = DesiredShare(slots=(0,), spec=SPEC, revision=revision)
    shares = tuple(PublishedShare(RISK, API, generation, share) for generation in generations)
    return Publication(RISK, API, revision, floor, shares)


async def published(world: World, *divisions: Publication) -> list[bool]:
    return await publish(world.databases, EAST, divisions)


async def generations(world: World) -> list[int]:
    return [generation for _, _, generation in await open_shares(world.databases, EAST)]


async def floor_and_number(world: World) -> tuple[int, int]:
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        query = text("SELECT must_serve, revision FROM regional.disruption_floors")
        row = (await connection.execute(query)).one()
        return row.must_serve, row.revision


@pytest.mark.parametrize("is_one_batch", [False, True])
async def test_an_older_division_inserts_no_share_that_a_newer_one_did_not_want(
    ready_world: World, is_one_batch: bool
) -> None:
    assert await published(ready_world, division(1, 1, floor=2)) == [True]
    older, newer = division(2, 2), division(3, 1)
    if is_one_batch:
        assert await published(ready_world, newer, older) == [True, False]
    else:
        assert await published(ready_world, newer) == [True]
        assert await published(ready_world, older) == [False]
    assert await generations(ready_world) == [1]
    assert await floor_and_number(ready_world) == (2, 3), "a floor that does not change stays"


async def test_the_same_division_again_is_in_force(ready_world: World) -> None:
    for _ in range(2):
        assert await published(ready_world, division(1, 1, 2)) == [True]
    assert await floor_and_number(ready_world) == (0, 1)


async def test_a_share_that_is_closed_is_not_said_to_be_written(ready_world: World) -> None:
    await published(ready_world, division(1, 1))
    async with ready_world.databases.at_region(EAST, "durable_placement").begin() as connection:
        await connection.execute(text("UPDATE regional.shares SET closed_at = clock_timestamp()"))
    assert await published(ready_world, division(2, 1)) == [False]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_new_workload_gets_its_slots_with_its_first_share(
    ready_world: World, times: int
) -> None:
    new = WorkloadName("new")
    share = DesiredShare(slots=(0, 1), spec=SPEC, revision=1)
    shares = (PublishedShare(RISK, new, 1, share),)
    first = Publication(RISK, new, 1, 1, shares, first_slots=(0, 1))
    async with ShareWriter(ready_world.databases, EAST) as writer:
        for _ in range(times):  # again, because the answer was lost
            assert await writer.submit(first)
    assert (RISK, new, 1) in await open_shares(ready_world.databases, EAST)
    held = await copies_of(ready_world.databases)
    assert {slot[2] for slot, region in held if slot[1] == new and region == EAST} == {0, 1}


async def test_a_first_share_that_comes_late_takes_no_slot_back(neighbours: World) -> None:
    moved = [SlotCopies(RISK, API, {50: 2})]
    await copy_slots(neighbours.databases, WEST, moved)
    share = DesiredShare(slots=(50,), spec=SPEC, revision=1)
    late = Publication(RISK, API, 1, 1, (PublishedShare(RISK, API, 1, share),), first_slots=(50,))
    async with ShareWriter(neighbours.databases, EAST) as writer:
        assert not await writer.submit(late), "its slot was handed over since"
    assert await open_shares(neighbours.databases, EAST) == []
    held = dict(await copies_of(neighbours.databases))
    assert next(region for slot, region in held.items() if slot[2] == 50) == WEST


async def test_an_older_first_share_brings_no_slots(ready_world: World) -> None:
    new = WorkloadName("new")
    share = DesiredShare(slots=(0,), spec=SPEC, revision=1)
    older = Publication(RISK, new, 1, 1, (PublishedShare(RISK, new, 1, share),), first_slots=(0,))
    async with ShareWriter(ready_world.databases, EAST) as writer:
        assert await writer.submit(Publication(RISK, new, 2))
        assert not await writer.submit(older)
    assert not [slot for slot, _ in await copies_of(ready_world.databases) if slot[1] == new]


async def test_a_share_that_has_changed_is_not_closed_by_a_placement_that_has_read_the_old_one(
    ready_world: World,
) -> None:
    """It was about to end, and slots that another region lost came to its share."""
    await published(ready_world, division(1, 1))
    await write_requests(ready_world.databases, EAST, [request()])
    await published(ready_world, division(2, 1))
    ends = {"state": RequestState.WITHDRAWN, "pending": None, "waiting": 0}
    others = request(**ends, workload=WorkloadName("other"), ends_revision=1)
    early = request(**ends, ends_revision=1)
    answers = await write_requests(ready_world.databases, EAST, [early, others])
    codes = [answer and answer.code for answer in answers]
    assert codes == [RefusalCode.OLD_DIVISION, None]
    assert await generations(ready_world) == [1]
    row = await read_request(ready_world.databases, EAST, RISK, API, 1)
    assert row is not None
    assert row.state is RequestState.PENDING, "it is as it was"
    last = request(**ends, ends_revision=2)
    assert await write_requests(ready_world.databases, EAST, [last]) == [None]
    assert await generations(ready_world) == []


async def test_a_share_that_changes_while_it_is_closed_is_closed_first_or_not_at_all(
    ready_world: World,
) -> None:
    await published(ready_world, division(1, 1))
    await write_requests(ready_world.databases, EAST, [request()])
    ends = request(state=RequestState.WITHDRAWN, pending=None, waiting=0, ends_revision=1)
    closing = write_requests(ready_world.databases, EAST, [ends])
    [refused], [is_written] = await asyncio.gather(closing, published(ready_world, division(2, 1)))
    assert (refused is None) is not is_written
    assert await generations(ready_world) == ([1] if is_written else [])


async def test_a_share_keeps_since_when_each_slot_has_been_in_it(ready_world: World) -> None:
    given: list[dict[int, datetime]] = []
    for revision, slots in enumerate([(0, 1), (1, 2, 0), (2,), (2, 1)], start=1):
        share = DesiredShare(slots=slots, spec=SPEC, revision=revision)
        shares = (PublishedShare(RISK, API, 1, share),)
        division = Publication(RISK, API, revision, None, shares)
        assert await published(ready_world, division) == [True]
        with psycopg.connect(ready_world.databases.url_of(EAST)) as owner:
            row = owner.execute("SELECT slots, given_at FROM regional.shares").fetchone()
        assert row is not None
        given.append(dict(zip(*row, strict=True)))
    first, grown, shrunk, again = given
    assert first[0] == first[1] == grown[0] == grown[1] < grown[2] == shrunk[2] == again[2]
    assert shrunk.keys() == {2}
    assert again[1] > grown[2]
