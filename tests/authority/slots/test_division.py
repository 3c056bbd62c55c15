"""An older division of a workload's slots undoes nothing that a newer one did, however late."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.slots import ownership
from durable.authority.slots.assignment import Division, SlotAssignment, assign_slots
from durable.authority.slots.reconciliation import SlotQueue, reconcile_slots
from durable.model.ids import RegionId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.work.running import Run
from durable.model.work.workload import WorkloadManifest, WorkloadSpec
from tests.authority.invariants import assert_promises_hold, copies_of
from tests.authority.waiting import until_waiting
from tests.authority.world import API, EAST, RISK, TEST, WEST, World, admit_workload

OLDER, NEWER = 1_000, 2_000
Share = Mapping[RegionId, tuple[int, ...]]


@pytest.fixture
async def admitted(two_regions: World) -> World:
    """A workload of two replicas, both in us-east by the older division."""
    await admit(two_regions, "r1")
    await divide(two_regions.databases, OLDER, {EAST: (0, 1)})
    return two_regions


@pytest.fixture
async def cut_off(urls: tuple[str, dict[str, str]]) -> AsyncIterator[Databases]:
    """The connections of a worker that Temporal has given up, and that runs on all the same."""
    async with Databases(*urls) as databases:
        yield databases


async def admit(world: World, request: str, *, version: int = 1) -> None:
    run = Run(image=f"api:{version}")
    wanted = WorkloadSpec(replicas=2, resources=Resources.of(1000, 512), run=run)
    manifest = WorkloadManifest(tenant=RISK, name=API, spec=wanted)
    await admit_workload(
        world.databases, manifest, request=request, actor=TEST, divide=lambda _: {EAST: (0, 1)}
    )


async def divide(
    databases: Databases, revision: int, share: Share, generation: int = 1
) -> list[str]:
    async with SlotQueue(databases) as queue:
        return await reconcile_slots(
            queue,
            RISK,
            API,
            share,
            transfer=f"r{revision}",
            division=Division(revision, generation),
            actor=TEST,
        )


async def owners(world: World) -> dict[int, str | None]:
    async with world.databases.at_global("durable_reader").begin() as connection:
        rows = await connection.execute(text("SELECT slot, region FROM global.slots"))
        return {row.slot: row.region for row in rows}


async def copies(world: World) -> dict[int, str]:
    return {slot[2]: region for slot, region in await copies_of(world.databases)}


async def observed_generation(world: World) -> int:
    async with world.databases.at_global("durable_reader").begin() as connection:
        query = text("SELECT observed_generation FROM global.workloads")
        return (await connection.execute(query)).scalar_one()


async def is_refused(databases: Databases, share: Share, revision: int = OLDER) -> bool:
    with pytest.raises(RefusedError) as no:
        await divide(databases, revision, share)
    return no.value.refusal.code is RefusalCode.OLD_DIVISION


async def test_a_worker_that_was_cut_off_moves_and_gives_up_nothing(
    admitted: World, cut_off: Databases
) -> None:
    await divide(admitted.databases, NEWER, {EAST: (0,), WEST: (1,)})
    for share in ({EAST: (0, 1)}, {WEST: (0, 1)}, {}):
        assert await is_refused(cut_off, share)
        assert await owners(admitted) == await copies(admitted) == {0: EAST, 1: WEST}
    assert await divide(cut_off, NEWER, {EAST: (0,), WEST: (1,)}) == [], (
        "the same again is harmless"
    )
    await assert_promises_hold(admitted.databases)


async def test_one_that_waits_for_the_lock_of_a_newer_one_is_refused(
    admitted: World, cut_off: Databases, urls: tuple[str, dict[str, str]]
) -> None:
    async with await psycopg.AsyncConnection.connect(urls[0]) as gate:
        await gate.execute("UPDATE global.workloads SET revision = %s", [NEWER])
        waiting = asyncio.create_task(is_refused(cut_off, {WEST: (0, 1)}))
        await until_waiting(gate)
        await gate.commit()
    assert await waiting
    assert await owners(admitted) == {0: EAST, 1: EAST}


async def test_one_that_paused_before_it_took_a_slot_back_leaves_it_where_it_is_wanted(
    admitted: World, cut_off: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _interrupted_by_a_newer_one(admitted, cut_off, monkeypatch, "_take_back")


async def test_one_that_paused_after_it_took_a_slot_back_leaves_it_where_it_is_wanted(
    admitted: World, cut_off: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _interrupted_by_a_newer_one(admitted, cut_off, monkeypatch, "_hand_over")


async def _interrupted_by_a_newer_one(
    world: World, cut_off: Databases, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A newer division is made just before this step of the older one, which then goes on."""
    real = getattr(ownership, step)

    async def late(*arguments: object) -> object:
        monkeypatch.setattr(ownership, step, real)
        await divide(world.databases, NEWER, {EAST: (0, 1)})
        return await real(*arguments)

    monkeypatch.setattr(ownership, step, late)
    assert await is_refused(cut_off, {EAST: (0,), WEST: (1,)}, OLDER + 1)
    assert await owners(world) == await copies(world) == {0: EAST, 1: EAST}
    await world.granted(world.reserve(1, node="e1"))
    await assert_promises_hold(world.databases)


async def test_of_two_divisions_in_one_batch_the_newer_counts(admitted: World) -> None:
    old = SlotAssignment(RISK, API, {EAST: (2,)}, "old", Division(NEWER - 1, 1))
    new = SlotAssignment(RISK, API, {WEST: (2,)}, "new", Division(NEWER, 1))
    refused, answered = await assign_slots(admitted.databases, [old, new])
    assert isinstance(refused, Refusal)
    assert refused.code is RefusalCode.OLD_DIVISION
    assert not isinstance(answered, Refusal)
    assert answered[2].region == WEST


async def test_the_generation_that_was_divided_is_observed(admitted: World) -> None:
    assert await observed_generation(admitted) == 1
    await admit(admitted, "r2", version=2)
    assert await observed_generation(admitted) == 1
    await divide(admitted.databases, NEWER, {EAST: (0, 1)}, generation=2)
    assert await observed_generation(admitted) == 2
    assert await is_refused(admitted.databases, {EAST: (0, 1)})
    assert await observed_generation(admitted) == 2
