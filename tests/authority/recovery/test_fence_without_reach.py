"""A region whose database hangs is fenced by its lease; when it is back, nothing is doubled."""

import pytest

from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.fleet.regions import read_region
from durable.authority.reads.claims import read_claims
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.fenced_claims import release_fenced
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.region_leases import renew
from durable.authority.slots.ownership import SlotRegistry
from durable.model.fleet.region_life import MARGIN
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from durable.stack.postgres.server import EmbeddedPostgres
from tests.agent.waiting import eventually
from tests.authority.invariants import assert_promises_hold
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, TEST, WEST, World, node, seconds
from tests.frozen import frozen


@pytest.fixture
def world(apart: World) -> World:
    """us-west is on a server of its own, and owns slot 0, which runs there."""
    return apart


async def test_slots_of_a_region_that_hangs_move_when_its_lease_has_lapsed(
    world: World, other_postgres: EmbeddedPostgres
) -> None:
    databases = world.databases
    registry = SlotRegistry(databases, RISK, API, FIRST_DIVISION)
    await registry.assign([0, 1], WEST, transfer="t0")
    token = await world.at(WEST).running(0, node="w1")
    await renew(databases, WEST, "w", lease_seconds=1)

    async def moved() -> bool:
        try:
            await registry.transfer([0], WEST, EAST, transfer="t1", actor=TEST)
        except AuthorityUnreachableError:
            return False
        return True

    with frozen(other_postgres):
        done = await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="it hangs")
        fact = await read_fact(databases, WEST)
        assert (done.epoch, done.is_in_region) == (2, False)
        assert fact.lease_expires_at is not None
        assert done.movable_at == fact.lease_expires_at + MARGIN
        await eventually("its slot has moved", moved)
        assert (await read_fact(databases, WEST)).read_at >= fact.lease_expires_at + MARGIN
        await world.running(0, node="e1")

    # Its old rows are there again, until it obeys.
    west = world.at(WEST)
    await eventually("its database answers", lambda: not databases.is_away(WEST))
    assert (await read_region(databases, WEST)).epoch == 1
    assert [one.token for one in await read_claims(databases, WEST)] == [token]
    lease = await renew(databases, WEST, "w", lease_seconds=60)
    assert (lease.is_fenced, lease.epoch) == (True, 2)
    west.epoch = 2
    assert await west.refused(west.reserve(1, node="w1")) is RefusalCode.REGION_FENCED
    with pytest.raises(RefusedError) as no:
        await reopen(databases, WEST, expected_epoch=2, actor=TEST, reason="it is back")
    assert no.value.refusal.code is RefusalCode.CLAIMS_LEFT

    # The lease of its node has not lapsed by the clock of this test, and then it has.
    waits = await release_fenced(databases, WEST, epoch=2, most=100, now=world.now)
    assert (waits.released, waits.waiting, waits.next_at) == (0, 1, seconds(600))
    gone = await release_fenced(databases, WEST, epoch=2, most=100, now=seconds(600))
    assert (gone.released, gone.waiting, gone.next_at) == (1, 0, None)
    status = await reopen(databases, WEST, expected_epoch=2, actor=TEST, reason="it is back")
    assert status.state is RegionState.OPEN
    west.now = seconds(600)
    await renew(databases, WEST, "w", lease_seconds=60, now=west.now)
    await west.with_nodes(node("w1", region=WEST), region=WEST)
    moved_away = west.reserve(0, node="w1", attempt=2)
    assert await west.refused(moved_away) is RefusalCode.SLOT_NOT_OWNED
    await west.granted(west.reserve(1, node="w1", attempt=2))
    await assert_promises_hold(databases)


async def test_a_region_that_was_never_leased_is_not_waited_out(
    world: World, other_postgres: EmbeddedPostgres
) -> None:
    registry = SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)
    await registry.assign([0], WEST, transfer="t0")
    with frozen(other_postgres):
        done = await fence(world.databases, WEST, expected_epoch=1, actor=TEST, reason="it hangs")
        assert (done.is_in_region, done.movable_at) == (False, None)
        with pytest.raises(AuthorityUnreachableError):
            await registry.transfer([0], WEST, EAST, transfer="t1", actor=TEST)


async def test_slots_of_a_region_that_hangs_stay_while_it_is_not_fenced(
    world: World, other_postgres: EmbeddedPostgres
) -> None:
    registry = SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)
    await registry.assign([0], WEST, transfer="t0")
    await renew(world.databases, WEST, "w", lease_seconds=0.001)
    with frozen(other_postgres), pytest.raises(AuthorityUnreachableError):
        await registry.transfer([0], WEST, EAST, transfer="t1", actor=TEST)
