"""What a recovery moves is noted once, follows what becomes of the workload, and has one writer."""

from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from durable.activities.recovery_moves import strays
from durable.authority.db.connection import Databases
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.moves import (
    Divide,
    list_affected,
    move_back,
    move_out,
    read_back_elsewhere,
)
from durable.authority.recovery.recoveries import (
    newest_recovery,
    reach_phase,
    read_moves,
    superseded_by,
    take_order,
)
from durable.authority.workloads.deletion import request_delete
from durable.authority.workloads.rows import read_workload
from durable.model.ids import RegionId
from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.recoveries import (
    RecoveryKey,
    RecoveryOrderKind,
    RecoveryPhase,
    WorkloadMove,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.work.workload import AdmittedWorkload, WorkloadManifest, WorkloadSpec
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


async def test_what_was_a_regions_own_comes_back_though_it_was_a_guest_elsewhere_meanwhile(
    world: World,
) -> None:
    """The same two losses, and west has its own and its guests back before east does."""
    databases, second = world.databases, RecoveryKey(region=WEST, epoch=2)
    await move(world, {WEST: (0, 1)})
    await lose_west(world, second)
    moves = await read_moves(databases, second)
    await move_out(databases, second, moves, {NAME: lambda _: {}}, actor=TEST)
    back: dict[tuple[str, str], Divide] = {NAME: lambda _: {WEST: (0, 1)}}
    await move_back(databases, second, moves, back, to=second, actor=TEST)
    assert await read_back_elsewhere(databases, LOST) == {}


async def lose_west(world: World, key: RecoveryKey) -> None:
    order = OperatorMessage.unsigned(
        str(key), RecoveryOrderKind.CONFIRM, actor=TEST, reason="a test", request_id="too"
    )
    await take_order(world.databases, order, by_policy=True)
    await fence(world.databases, WEST, expected_epoch=1, actor=TEST, reason="a test")
    await list_affected(world.databases, key)


async def test_what_did_not_go_back_is_given_back_after_the_next_loss(world: World) -> None:
    """A failback that ended without it does not leave it elsewhere for ever."""
    databases, later = world.databases, RecoveryKey(region=EAST, epoch=3)
    await move(world, {WEST: (0, 1)})
    found = await newest_recovery(databases, EAST)
    assert found is not None
    await reach_phase(databases, found, RecoveryPhase.FAILED_BACK, actor=TEST, reason="given up")
    assert await superseded_by(databases, later) == [LOST]
    moves = await read_moves(databases, LOST)
    home: dict[tuple[str, str], Divide] = {NAME: lambda _: {EAST: (0, 1)}}
    await move_back(databases, LOST, moves, home, to=LOST, actor=TEST)
    await reopen(databases, EAST, expected_epoch=2, actor=TEST, reason="it is back")
    order = OperatorMessage.unsigned(
        str(later), RecoveryOrderKind.CONFIRM, actor=TEST, reason="a test", request_id="later"
    )
    await take_order(databases, order, by_policy=True)
    assert await superseded_by(databases, later) == [], "what went back before is no concern of it"


def admitted(share: Share, replicas: int = 12, **changes: object) -> AdmittedWorkload:
    spec = WorkloadSpec(replicas=replicas, resources=Resources.of(100, 128))
    named = {"tenant": RISK, "workload": API, "generation": 1, "spec": spec, "share": share}
    return AdmittedWorkload.model_validate({**named, **changes})


@pytest.mark.parametrize(
    ("share", "replicas", "elsewhere", "expected"),
    [
        ({EAST: range(12)}, 12, (), 0),
        ({EAST: range(6), WEST: range(6, 12)}, 12, (), 6),
        # It was a guest only, and is where it came from.
        ({EAST: range(6), WEST: range(6, 12)}, 12, range(6, 12), 0),
        # It was scaled down meanwhile.
        ({EAST: range(6)}, 6, (), 0),
        ({WEST: range(12)}, 12, (), 12),
    ],
)
def test_what_is_not_back_is_never_said_to_be(
    share: Mapping[RegionId, range], replicas: int, elsewhere: Sequence[int], expected: int
) -> None:
    moved = WorkloadMove(
        tenant=RISK, workload=API, priority=900, replicas=12, slots=tuple(range(12))
    )
    now = admitted({region: tuple(some) for region, some in share.items()}, replicas)
    found = strays(EAST, [moved], [now], {NAME: frozenset(elsewhere)})
    said = f"{expected} of the 12 replicas of risk/api that us-east had are elsewhere."
    assert found == ([said] if expected else [])
