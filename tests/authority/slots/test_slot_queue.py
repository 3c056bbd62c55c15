"""Slots of many workloads are assigned together, finished when sent again, and never twice."""

import asyncio
from collections.abc import Mapping, Sequence

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.db import connection as connection_module
from durable.authority.db.connection import Databases
from durable.authority.slots.assignment import SlotAssignment, assign_slots
from durable.authority.slots.ownership import SlotRegistry
from durable.authority.slots.reconciliation import SlotQueue, reconcile_slots
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from tests.authority.invariants import assert_promises_hold, copies_of
from tests.authority.waiting import until_waiting
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, TEST, WEST, World

Owned = dict[tuple[str, int], str]


def assignment(
    name: str, share: Mapping[RegionId, Sequence[int]], transfer: str = "t", tenant: str = RISK
) -> SlotAssignment:
    return SlotAssignment(TenantId(tenant), WorkloadName(name), share, transfer, FIRST_DIVISION)


async def facts(world: World) -> Owned:
    query = text("SELECT workload, slot, region FROM global.slots WHERE region IS NOT NULL")
    async with world.databases.at_global("durable_reader").begin() as connection:
        return {(r.workload, r.slot): r.region for r in await connection.execute(query)}


async def copies(world: World) -> Owned:
    return {(slot[1], slot[2]): region for slot, region in await copies_of(world.databases)}


async def test_slots_of_many_workloads_are_assigned_in_one_transaction(two_regions: World) -> None:
    assignments = [assignment(f"w{n}", {EAST: (0, 2), WEST: (1,)}) for n in range(40)]
    async with SlotQueue(two_regions.databases) as queue:
        await queue.assign(assignment("w0", {EAST: (), WEST: ()}))  # it has heard of the regions
        owners = await asyncio.gather(*map(queue.assign, assignments))
        assert await asyncio.gather(*map(queue.assign, assignments)) == owners, "again is harmless"
    assert {slot: owner.region for slot, owner in owners[0][0].items()} == {
        0: EAST,
        1: WEST,
        2: EAST,
    }
    assert await facts(two_regions) == await copies(two_regions)
    assert len(await facts(two_regions)) == 120
    query = text("SELECT count(DISTINCT xmin::text), max(number) FROM global.slots")
    async with two_regions.databases.at_global("durable_reader").begin() as connection:
        assert tuple((await connection.execute(query)).one()) == (1, 1)
    await assert_promises_hold(two_regions.databases)


async def test_an_assignment_that_ended_before_the_copies_is_finished_when_sent_again(
    two_regions: World,
) -> None:
    half = [assignment(f"w{n}", {EAST: (0,), WEST: (1,)}) for n in range(5)]
    await assign_slots(two_regions.databases, half)
    assert await copies(two_regions) == {}
    async with SlotQueue(two_regions.databases) as queue:
        await asyncio.gather(*map(queue.assign, half))
    assert await facts(two_regions) == await copies(two_regions)


async def test_what_another_region_owns_stays_there_and_is_reported(two_regions: World) -> None:
    assignments = [assignment("w", {EAST: (0, 1)}), assignment("w", {WEST: (1, 2)})]
    first, second = await assign_slots(two_regions.databases, assignments)
    assert first == second
    async with SlotQueue(two_regions.databases) as queue:
        assert await asyncio.gather(*map(queue.assign, assignments)) == [(first, {})] * 2
    owned = {("w", 0): EAST, ("w", 1): EAST, ("w", 2): WEST}
    assert await facts(two_regions) == await copies(two_regions) == owned


async def test_an_unknown_name_is_refused_alone_and_before_anything_is_assigned(
    two_regions: World,
) -> None:
    async with SlotQueue(two_regions.databases) as queue:
        nowhere, stranger, good = await asyncio.gather(
            queue.assign(assignment("a", {EAST: (0,), RegionId("nowhere"): (1,)})),
            queue.assign(assignment("b", {EAST: (0,)}, tenant="stranger")),
            queue.assign(assignment("c", {EAST: (0,)})),
            return_exceptions=True,
        )
    assert isinstance(nowhere, RefusedError)
    assert nowhere.refusal.code is RefusalCode.UNKNOWN_REGION
    assert isinstance(stranger, RefusedError)
    assert stranger.refusal.code is RefusalCode.UNKNOWN_TENANT
    assert not isinstance(good, BaseException)
    assert await facts(two_regions) == {("c", 0): EAST}


async def test_batches_with_the_same_slots_in_opposite_order_never_deadlock(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "ATTEMPTS", 1)  # or a victim would be tried again
    url = ready_world.databases.urls[0]
    async with Databases(url) as here, Databases(url) as there:
        for turn in range(15):
            names = [f"old{n}" for n in range(10)] + [f"new{turn}-{n}" for n in range(10)]
            assignments = [assignment(name, {EAST: range(5)}) for name in names]
            mine, theirs = await asyncio.gather(
                assign_slots(here, assignments), assign_slots(there, assignments[::-1])
            )
            assert mine == theirs[::-1]


async def test_a_region_that_does_not_answer_keeps_nobody_else_waiting(neighbours: World) -> None:
    url = neighbours.databases.urls[0]
    async with (
        SlotQueue(neighbours.databases) as queue,
        await psycopg.AsyncConnection.connect(url) as gate,
    ):
        await gate.execute(
            "INSERT INTO regional.slots (tenant, workload, slot, region, number)"
            " VALUES (%s, 'w', 0, 'us-west', 1)",
            [RISK],
        )
        stuck = asyncio.create_task(queue.assign(assignment("w", {WEST: (0,)})))
        await until_waiting(gate)
        await queue.assign(assignment("e", {EAST: (0,)}))
        assert not stuck.done()
        await gate.rollback()
        await stuck
    assert await facts(neighbours) == await copies(neighbours)


async def test_reconciling_assigns_moves_and_gives_up_as_far_as_claims_allow(
    two_regions: World,
) -> None:
    async def reconcile(share: Mapping[RegionId, tuple[int, ...]], transfer: str) -> list[str]:
        return await reconcile_slots(
            queue, RISK, API, share, transfer=transfer, division=FIRST_DIVISION, actor=TEST
        )

    async with SlotQueue(two_regions.databases) as queue:
        assert await reconcile({EAST: (0, 1, 2), WEST: (3,)}, "s1") == []
        token = await two_regions.running(1, node="e1")
        held = await two_regions.at(WEST).granted(two_regions.at(WEST).reserve(3, node="w1"))

        waits = await reconcile({WEST: (0, 1), EAST: (4,)}, "s2")
        assert waits == [
            "Slot 1 is still claimed in us-east; it is being stopped.",
            "Slot 3 is still claimed in us-west; it is being stopped.",
        ]
        owned = {("api", 0): WEST, ("api", 1): EAST, ("api", 3): WEST, ("api", 4): EAST}
        assert await facts(two_regions) == await copies(two_regions) == owned

        await two_regions.granted(two_regions.evict(token, 1))
        west = two_regions.at(WEST)
        await west.granted(west.release(held.token, 3))
        assert len(await reconcile({WEST: (0, 1), EAST: (4,)}, "s2")) == 1
        assert ("api", 3) not in await facts(two_regions)
        assert await reconcile({}, "s3") != [], "slot 1 is still claimed"
    assert await facts(two_regions) == {("api", 1): EAST}
    await assert_promises_hold(two_regions.databases)


async def test_a_slot_that_was_given_up_is_assigned_under_the_next_number(
    two_regions: World,
) -> None:
    registry = SlotRegistry(two_regions.databases, RISK, API, FIRST_DIVISION)
    await registry.assign([0, 1], EAST, transfer="t0")
    await registry.give_up([0], EAST, transfer="t1")
    async with SlotQueue(two_regions.databases) as queue:
        owners, _ = await queue.assign(assignment("api", {WEST: (0,), EAST: (1,)}, "t2"))
    assert {s: (o.region, o.number) for s, o in owners.items()} == {0: (WEST, 2), 1: (EAST, 1)}
    assert await facts(two_regions) == await copies(two_regions)
    await assert_promises_hold(two_regions.databases)
