"""What a recovery moves is noted once, follows what becomes of the workload, and has one writer."""

from collections.abc import AsyncIterator, Mapping

import pytest

from durable.authority.db.connection import Databases
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.moves import (
    Divide,
    list_affected,
    move_back,
    move_out,
    read_back_elsewhere,
)
from durable.authority.recovery.recoveries import read_moves, take_order
from durable.authority.workloads.deletion import request_delete
from durable.authority.workloads.rows import read_workload
from durable.model.ids import RegionId
from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.recoveries import (
    RecoveryKey,
    RecoveryOrderKind,
    WorkloadMove,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.work.workload import WorkloadManifest, WorkloadSpec
from tests.authority.world import (
    API,
    EAST,
    RISK,
    TEST,
    WEST,
    World,
    admit_workload,
    workload_message,
)

LOST = RecoveryKey(region=EAST, epoch=2)
NAME = (str(RISK), str(API))
Share = Mapping[RegionId, tuple[int, ...]]


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """us-east had two replicas and is lost; its recovery is confirmed."""
    async with Databases(database_url) as databases:
        world = await World(databases).with_two_regions()
        await apply(world, {EAST: (0, 1)})
        order = OperatorMessage.unsigned(
            str(LOST), RecoveryOrderKind.CONFIRM, actor=TEST, reason="a test", request_id="lost"
        )
        await take_order(databases, order, by_policy=True)
        await fence(databases, EAST, expected_epoch=1, actor=TEST, reason="a test")
        await list_affected(databases, LOST)
        yield world


async def apply(world: World, share: Share) -> None:
    slots = sum(len(some) for some in share.values())
    spec = WorkloadSpec(replicas=slots, resources=Resources.of(100, 128))
    asked = WorkloadManifest(tenant=RISK, name=API, spec=spec)
    await admit_workload(
        world.databases, asked, request=f"apply-{slots}", actor=TEST, divide=lambda _: share
    )


async def move(world: World, share: Share) -> WorkloadMove:
    moves = await read_moves(world.databases, LOST)
    await move_out(world.databases, LOST, moves, {NAME: lambda _: share}, actor=TEST)
    [moved] = await read_moves(world.databases, LOST)
    return moved


async def test_a_workload_that_is_given_slots_in_the_lost_region_once_more_moves_once_more(
    world: World,
) -> None:
    first = await move(world, {WEST: (0, 1)})
    assert (first.slots, first.replicas) == ((0, 1), 2)
    assert first.moved_at is not None
    # By somebody who did not know yet that the region is lost.
    await apply(world, {EAST: (2,), WEST: (0, 1)})
    await list_affected(world.databases, LOST)
    [again] = await read_moves(world.databases, LOST)
    assert (again.slots, again.replicas, again.moved_at) == ((0, 1, 2), 3, None)
    second = await move(world, {WEST: (0, 1, 2)})
    assert second.slots == (0, 1, 2), "all of it goes back one day"
    workload = await read_workload(world.databases, RISK, API)
    assert workload is not None
    assert workload.share == {WEST: (0, 1, 2)}
    assert workload.incident == LOST.incident


async def test_what_is_deleted_meanwhile_need_not_come_back(world: World) -> None:
    await move(world, {WEST: (0, 1)})
    await request_delete(world.databases, RISK, API, workload_message("delete", "delete"))
    await list_affected(world.databases, LOST)
    [deleted] = await read_moves(world.databases, LOST)
    assert deleted.lost == ()


async def test_a_recovery_whose_region_was_lost_again_moves_nothing_any_more(world: World) -> None:
    databases = world.databases
    await move(world, {WEST: (0, 1)})
    await reopen(databases, EAST, expected_epoch=2, actor=TEST, reason="it is back")
    await fence(databases, EAST, expected_epoch=2, actor=TEST, reason="lost again")
    moves = await read_moves(databases, LOST)
    share: dict[tuple[str, str], Divide] = {NAME: lambda _: {EAST: (0, 1)}}
    for late in (
        move_out(databases, LOST, moves, share, actor=TEST),
        move_back(databases, LOST, moves, share, to=LOST, actor=TEST),
    ):
        with pytest.raises(RefusedError) as no:
            await late
        assert no.value.refusal.code is RefusalCode.FENCED_WRITER
    later = RecoveryKey(region=EAST, epoch=3)
    await move_back(databases, LOST, moves, share, to=later, actor=TEST)
    [returned] = await read_moves(databases, LOST)
    assert returned.returned_at is not None


async def test_what_was_only_a_guest_and_has_gone_home_does_not_come_back(world: World) -> None:
    """East's slots went to west, which was lost too; east has them back before west does."""
    databases, second = world.databases, RecoveryKey(region=WEST, epoch=2)
    guests = await move(world, {WEST: (0, 1)})
    order = OperatorMessage.unsigned(
        str(second), RecoveryOrderKind.CONFIRM, actor=TEST, reason="a test", request_id="too"
    )
    await take_order(databases, order, by_policy=True)
    await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="a test")
    await list_affected(databases, second)
    moves = await read_moves(databases, second)
    await move_out(databases, second, moves, {NAME: lambda _: {}}, actor=TEST)
    assert await read_back_elsewhere(databases, second) == {}
    home: dict[tuple[str, str], Divide] = {NAME: lambda _: {EAST: (0, 1)}}
    await move_back(databases, LOST, [guests], home, to=LOST, actor=TEST)
    assert await read_back_elsewhere(databases, second) == {NAME: frozenset({0, 1})}
    assert await read_back_elsewhere(databases, LOST) == {}
