"""A region lives on a lease: it takes nothing after its end, and obeys a fence."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from durable.authority.db.connection import transact
from durable.authority.fleet.regions import read_region
from durable.authority.recovery.fence import fence, lease_fenced, reopen
from durable.authority.recovery.region_facts import read_fact, read_facts
from durable.authority.recovery.region_leases import renew
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from tests.authority.world import EAST, TEST, WEST, World


async def leased_until(world: World) -> datetime:
    engine = world.databases.at_region(EAST, "durable_reader")
    read = text("SELECT lease_expires_at FROM regional.regions WHERE region = 'us-east'")

    async def body(connection: object) -> datetime:
        return (await connection.execute(read)).scalar_one()  # type: ignore[attr-defined]

    return await transact(engine, body, doing="read")


async def test_a_region_takes_nothing_new_once_its_lease_has_lapsed(ready_world: World) -> None:
    world = ready_world
    world.now = datetime.now(UTC)
    await world.with_nodes(lease_seconds=3600)
    lease = await renew(world.databases, EAST, "w", lease_seconds=60)
    assert lease.expires_at is not None
    held, bound = [(await world.granted(world.reserve(slot))).token for slot in (0, 1)]
    await world.granted(world.bind(bound, 1))
    world.now = lease.expires_at
    for intent in (world.reserve(2), world.start(bound, 1)):
        assert await world.refused(intent) is RefusalCode.REGION_LEASE_LAPSED
    await world.granted(world.release(held, 0))


async def test_a_region_that_was_never_leased_takes_work(ready_world: World) -> None:
    assert (await read_fact(ready_world.databases, EAST)).lease_expires_at is None
    await ready_world.running()


async def test_the_lease_of_the_region_ends_no_later_than_the_global_sides(
    ready_world: World,
) -> None:
    lease = await renew(ready_world.databases, EAST, "w", lease_seconds=60)
    fact = await read_fact(ready_world.databases, EAST)
    assert fact.lease_expires_at is not None
    assert lease.expires_at is not None
    assert lease.expires_at == await leased_until(ready_world)
    assert lease.expires_at <= fact.lease_expires_at


async def test_a_shorter_renewal_shortens_nothing(ready_world: World) -> None:
    first = await renew(ready_world.databases, EAST, "w", lease_seconds=600)
    await renew(ready_world.databases, EAST, "w", lease_seconds=1)
    assert await leased_until(ready_world) == first.expires_at


async def test_a_fenced_region_that_answers_keeps_its_lease_and_obeys(two_regions: World) -> None:
    databases = two_regions.databases
    await renew(databases, WEST, "w", lease_seconds=60)
    before = await read_fact(databases, WEST)
    done = await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="a drill")
    assert (done.epoch, done.is_in_region) == (2, True)
    lease = await renew(databases, WEST, "w", lease_seconds=600)
    assert (lease.is_fenced, lease.epoch) == (True, 2)
    after = await read_fact(databases, WEST)
    assert before.lease_expires_at is not None
    assert after.lease_expires_at is not None
    assert lease.expires_at is not None
    assert before.lease_expires_at < lease.expires_at <= after.lease_expires_at
    assert not after.is_movable
    assert (await read_facts(databases))[EAST].state is RegionState.OPEN


async def test_a_fenced_region_that_does_not_answer_is_not_renewed(two_regions: World) -> None:
    databases = two_regions.databases
    await renew(databases, WEST, "w", lease_seconds=60)
    await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="a drill")
    await lease_fenced(databases, WEST, 1, goes_on=False)  # somebody who is late
    assert (await renew(databases, WEST, "w", lease_seconds=90)).expires_at is not None
    await lease_fenced(databases, WEST, 2, goes_on=False)
    before = await read_fact(databases, WEST)
    assert (await renew(databases, WEST, "w", lease_seconds=600)).expires_at is None
    assert (await read_fact(databases, WEST)).lease_expires_at == before.lease_expires_at


async def test_the_lease_of_a_fenced_region_is_not_begun_anew(two_regions: World) -> None:
    databases = two_regions.databases
    await renew(databases, WEST, "w", lease_seconds=0)
    await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="a drill")
    assert (await renew(databases, WEST, "w", lease_seconds=600)).expires_at is None
    await reopen(databases, WEST, expected_epoch=2, actor=TEST, reason="over")
    assert (await renew(databases, WEST, "w", lease_seconds=600)).expires_at is not None


async def test_fence_and_reopen_are_idempotent_and_know_their_epoch(two_regions: World) -> None:
    databases = two_regions.databases
    for _ in range(2):
        done = await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="a drill")
        assert done.epoch == 2
    with pytest.raises(RefusedError, match="epoch 2, not 3") as no:
        await fence(databases, WEST, expected_epoch=3, actor=TEST, reason="a drill")
    assert no.value.refusal.code is RefusalCode.FENCED_WRITER
    with pytest.raises(RefusedError, match="fenced already"):
        await fence(databases, WEST, expected_epoch=2, actor=TEST, reason="a drill")
    for _ in range(2):
        status = await reopen(databases, WEST, expected_epoch=2, actor=TEST, reason="over")
        assert (status.epoch, status.state) == (2, RegionState.OPEN)
    assert (await read_region(databases, WEST)).epoch == 2
    lease = await renew(databases, WEST, "w", lease_seconds=60)
    assert lease.expires_at is not None
    assert lease.expires_at > datetime.now(UTC) - timedelta(seconds=5)
