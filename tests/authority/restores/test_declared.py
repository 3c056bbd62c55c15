"""What went back is declared restored: afterwards nothing is granted twice, and work goes on."""

import pytest
from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.errors import WentBackError
from durable.authority.fleet.regions import read_region, tokens_issued
from durable.authority.quota.quotas import read_quota
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.reads.claims import read_claims
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.fenced_claims import release_fenced
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.region_leases import renew
from durable.authority.restores import declared
from durable.authority.restores.declared import RestoreReport, declare_restored
from durable.authority.restores.found import read_went_back
from durable.authority.restores.opening import open_restored
from durable.authority.slots.ownership import SlotRegistry
from durable.authority.slots.shares import Publication, PublishedShare, publish
from durable.model.fleet.restores import RestoredSide
from durable.model.ids import RegionId
from durable.model.placement.intents import ReleaseCause
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.states import RegionState
from durable.model.work.share import DesiredShare
from durable.model.work.workload import WorkloadSpec
from tests.authority.invariants import assert_promises_hold
from tests.authority.restores.conftest import GLOBAL, Apart
from tests.authority.world import (
    API,
    EAST,
    FIRST_DIVISION,
    RISK,
    TEST,
    WEST,
    World,
    node,
    seconds,
)

LONG = 10**9
ONLY_WEST = RestoredSide(region=WEST)
ONLY_GLOBAL = RestoredSide()
EVERYTHING = RestoredSide(is_all=True)


def registry(world: World) -> SlotRegistry:
    return SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)


async def admitted(world: World) -> None:
    """The rows know the workload; what they do not know is nobody's after a restore."""
    async with world.databases.at_global("durable_workload").begin() as connection:
        await connection.execute(
            text("INSERT INTO global.workloads (tenant, workload, generation, spec, share)"
                 " VALUES (:tenant, :workload, 1, '{}', CAST(:share AS jsonb))"),
            {"tenant": RISK, "workload": API, "share": '{"us-west": [0]}'},
        )  # fmt: skip


async def renewed(world: World, region: RegionId = WEST) -> None:
    await renew(world.databases, region, "w", lease_seconds=LONG, now=world.now)


async def restored(world: World, side: RestoredSide) -> RestoreReport:
    return await declare_restored(world.databases, side, actor=TEST, reason="a test")


async def opened(world: World, region: RegionId, at: float = 600) -> World:
    """The region as it is when its agent registered again, and took up its work."""
    databases = world.databases
    epoch = (await read_fact(databases, region)).epoch
    await release_fenced(databases, region, epoch=epoch, most=100, now=seconds(at))
    assert await open_restored(databases, region, epoch)
    back = world.at(region, epoch)
    back.now = seconds(at)
    await renewed(back, region)
    name = {WEST: "w1", EAST: "e1"}[region]
    return await back.with_nodes(node(name, region=region), region=region)


async def granted(databases: Databases, region: RegionId) -> int:
    async with databases.at_region(region, "durable_reader").begin() as connection:
        found = await connection.execute(
            text("SELECT sum(granted_cpu_millis) FROM regional.grants WHERE region = :region"),
            {"region": region},
        )
        return int(found.scalar_one())


async def test_a_slot_that_moved_after_the_copy_of_the_global_side_has_one_holder(
    apart: Apart,
) -> None:
    """Seen: it was granted in west while east held it."""
    world = await apart.open()
    await admitted(world)
    await registry(world).assign([0], EAST, transfer="t0")
    await renewed(world)
    world = await apart.back_up(GLOBAL)
    await registry(world).transfer([0], EAST, WEST, transfer="t1", actor=TEST)
    token = await world.at(WEST).running(0, node="w1")
    await renewed(world)
    world = await apart.restore(GLOBAL)
    with pytest.raises(WentBackError):
        await renewed(world)
    with pytest.raises(WentBackError):
        await world.running(0, node="e1")  # the restored rows say that it is east's

    done = await restored(world, ONLY_GLOBAL)
    assert (done.regions, done.unreachable) == ((EAST, WEST), ())
    assert not await read_went_back(world.databases)
    east = await opened(world, EAST)
    refused = await east.refused(east.reserve(0, node="e1", attempt=2))
    assert refused is RefusalCode.SLOT_NOT_OWNED
    await opened(world, WEST)
    assert [one.token for one in await read_claims(world.databases, WEST)] == [token]
    await assert_promises_hold(world.databases)


async def test_grants_that_moved_after_the_copy_of_the_global_side_are_not_granted_twice(
    apart: Apart,
) -> None:
    """Seen: 290 cpu granted in the regions, of a hard quota of 200."""
    world = await apart.open()
    await renewed(world)
    world = await apart.back_up(GLOBAL)
    quota = await read_quota(world.databases, RISK)
    rest = quota.target - quota.granted
    given = GrantTransfer(id="t1", tenant=RISK, amount=rest, to_region=WEST, actor=TEST)
    if not rest.is_zero:
        await transfer_grant(world.databases, given)
    moved = Resources.of(90_000, 0)
    await transfer_grant(
        world.databases,
        GrantTransfer(
            id="t2", tenant=RISK, amount=moved, from_region=EAST, to_region=WEST, actor=TEST
        ),
    )
    await renewed(world)
    world = await apart.restore(GLOBAL)
    with pytest.raises(WentBackError):
        await renewed(world)
    await restored(world, ONLY_GLOBAL)

    quota = await read_quota(world.databases, RISK)
    in_regions = await granted(world.databases, EAST) + await granted(world.databases, WEST)
    assert quota.granted.cpu_millis == in_regions
    assert quota.granted.fits_in(quota.hard)
    more = GrantTransfer(
        id="t3", tenant=RISK, amount=Resources.of(110_000, 0), to_region=EAST, actor=TEST
    )
    with pytest.raises(RefusedError):  # nothing more is granted than the quota has
        await transfer_grant(world.databases, more)


async def test_a_region_from_before_its_fence_does_not_open_with_its_old_claims(
    apart: Apart,
) -> None:
    """Seen: the copy says open, so nobody asked what was left there."""
    world = await apart.open()
    await registry(world).assign([0, 1], WEST, transfer="t0")
    for slot in (0, 1):
        await world.at(WEST).running(slot, node="w1")
    await renewed(world)
    world = await apart.back_up(WEST)
    databases = world.databases
    await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="lost")
    await release_all(world, 2)
    await registry(world).transfer([0], WEST, EAST, transfer="t1", actor=TEST)
    await reopen(databases, WEST, expected_epoch=2, actor=TEST, reason="back")
    await world.running(0, node="e1")
    world.now = seconds(600)
    await renewed(world)
    world = await apart.restore(WEST)
    databases = world.databases

    with pytest.raises(WentBackError):
        await renewed(world)
    assert (await read_region(databases, WEST)).epoch == 1
    await restored(world, ONLY_WEST)
    status = await read_region(databases, WEST)
    assert (status.epoch, status.state) == (3, RegionState.FENCED)
    # The claim of slot 0 counts for nothing, and the region is not opened before it has ended.
    assert not await open_restored(databases, WEST, 3)
    west = await opened(world, WEST)
    assert [one.slot for one in await read_claims(databases, WEST)] == [1]
    refused = await west.refused(west.reserve(0, node="w1", attempt=9))
    assert refused is RefusalCode.SLOT_NOT_OWNED
    await assert_promises_hold(databases)


async def test_a_region_that_missed_a_fence_and_its_end_does_not_keep_its_old_claims(
    apart: Apart,
) -> None:
    """No renewal came between, so the numbers agree; but its epoch is behind."""
    world = await apart.open()
    await registry(world).assign([0], WEST, transfer="t0")
    await world.at(WEST).running(0, node="w1")
    world = await apart.back_up(WEST)
    await fence(world.databases, WEST, expected_epoch=1, actor=TEST, reason="lost")
    await release_all(world, 2)
    await registry(world).transfer([0], WEST, EAST, transfer="t1", actor=TEST)
    await reopen(world.databases, WEST, expected_epoch=2, actor=TEST, reason="back")
    world = await apart.restore(WEST)
    with pytest.raises(RefusedError) as no:
        await renewed(world)
    assert no.value.refusal.code is RefusalCode.CLAIMS_LEFT
    assert (await read_region(world.databases, WEST)).epoch == 1


async def release_all(world: World, epoch: int) -> None:
    """Releases every claim of west, as after the lapse of its nodes."""
    west = world.at(WEST, epoch)
    west.now = seconds(600)
    for claim in await read_claims(world.databases, WEST):
        await west.granted(west.release(claim.token, claim.slot, ReleaseCause.REGION_FENCED))


async def test_tokens_of_a_restored_region_are_above_those_that_agents_know(apart: Apart) -> None:
    world = await apart.open()
    await registry(world).assign(range(4), WEST, transfer="t0")
    await renewed(world)
    world = await apart.back_up(WEST)
    known = [await world.at(WEST).running(slot, node="w1") for slot in range(3)]
    version = (await read_region(world.databases, WEST)).version
    await renewed(world)
    world = await apart.restore(WEST)
    with pytest.raises(WentBackError):
        await renewed(world)
    await restored(world, ONLY_WEST)
    west = await opened(world, WEST)
    token = await west.running(0, node="w1", attempt=7)
    assert token > max(known)
    assert (await read_region(world.databases, WEST)).version > version
    assert await tokens_issued(world.databases, WEST) == token
    await assert_promises_hold(world.databases)


async def test_a_region_gets_the_grant_of_the_books_and_gives_back_what_they_took(
    apart: Apart,
) -> None:
    world = await apart.open()
    await renewed(world)
    world = await apart.back_up(WEST)
    for number, (source, receiver) in enumerate(((WEST, EAST), (EAST, WEST))):
        cpu, memory = (50_000, 0) if source == WEST else (0, 4_000)
        await transfer_grant(
            world.databases,
            GrantTransfer(
                id=f"t{number}", tenant=RISK, amount=Resources.of(cpu, memory),
                from_region=source, to_region=receiver, actor=TEST,
            ),
        )  # fmt: skip
    has = await granted(world.databases, WEST)
    await renewed(world)
    world = await apart.restore(WEST)
    with pytest.raises(WentBackError):
        await renewed(world)
    for _ in range(2):  # as after a kill
        await restored(world, ONLY_WEST)
    assert await granted(world.databases, WEST) == has + 50_000
    await opened(world, WEST)
    assert await granted(world.databases, WEST) == has
    await assert_promises_hold(world.databases)


async def test_everything_restored_goes_on_above_every_epoch_and_revision(apart: Apart) -> None:
    world = await apart.open()
    await registry(world).assign([0], WEST, transfer="t0")
    await renewed(world)
    world = await apart.back_up(GLOBAL, WEST)
    lost = await world.at(WEST).running(0, node="w1")
    world = await apart.restore(GLOBAL, WEST)
    await renewed(world)  # both agree: nobody notices by numbers
    assert not await read_went_back(world.databases)
    await restored(world, EVERYTHING)
    west = await opened(world, WEST)
    assert west.epoch > 1000
    assert await west.running(0, node="w1", attempt=2) > lost
    await assert_promises_hold(world.databases)


async def test_an_interrupted_command_leaves_everything_halted_until_it_is_run_again(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await apart.open()
    await registry(world).assign([0], WEST, transfer="t0")
    await renewed(world)
    for step in (
        "_fence",
        "follow_copies",
        "renumber",
        "_raise_revisions",
        "_number_fact",
        "_go_on",
    ):
        whole = getattr(declared, step)

        async def killed(*given: object, _whole: object = whole) -> None:
            await _whole(*given)  # type: ignore[operator]
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(declared, step, killed)
            with pytest.raises(KeyboardInterrupt):
                await restored(world, ONLY_GLOBAL)
        assert any(one.serves_global for one in await read_went_back(world.databases))
        with pytest.raises(WentBackError, match="is under way or was interrupted"):
            await registry(world).assign([1], EAST, transfer="t1")
    await restored(world, ONLY_GLOBAL)
    assert not await read_went_back(world.databases)
    for region in (EAST, WEST):
        await opened(world, region)
    await assert_promises_hold(world.databases)


async def test_a_region_beside_the_global_side_is_restored_with_it(apart: Apart) -> None:
    world = await apart.open()
    with pytest.raises(RefusedError, match="durable restored --global"):
        await restored(world, RestoredSide(region=EAST))


async def test_what_a_region_runs_of_a_workload_that_was_lost_is_nobodys_and_ends(
    apart: Apart,
) -> None:
    """Seen: nodes went on with what had been applied after the copy, and nobody said so."""
    world = await apart.open()
    await renewed(world)
    world = await apart.back_up(GLOBAL)
    await admitted(world)
    await registry(world).assign([0], WEST, transfer="t0")
    spec = WorkloadSpec(replicas=1, resources=Resources.of(1000, 512))
    share = DesiredShare(slots=(0,), spec=spec, revision=1)
    division = Publication(RISK, API, 1, shares=(PublishedShare(RISK, API, 1, share),))
    assert await publish(world.databases, WEST, [division]) == [True]
    await world.at(WEST).running(0, node="w1")
    await renewed(world)
    world = await apart.restore(GLOBAL)
    with pytest.raises(WentBackError):
        await renewed(world)
    done = await restored(world, ONLY_GLOBAL)
    assert done.lost == (f"{RISK}/{API}",)
    async with world.databases.at_global("durable_reader").begin() as connection:
        row = (
            await connection.execute(
                text("SELECT delete_requested_at, deleted_at, finalizers FROM global.workloads")
            )
        ).one()
    assert row.delete_requested_at is not None
    assert row.deleted_at is None
    assert row.finalizers
