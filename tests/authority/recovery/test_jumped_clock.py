"""A region whose clock jumped: its lease counts for nothing, and nothing is renewed across that.

The moments are the test's: the clock of the region's database as it was read at each step.
"""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.fleet.node_sessions import renew_leases
from durable.authority.fleet.regions import HELD_LEASE, held_lease
from durable.authority.reads.invariants import violations_everywhere
from durable.authority.reads.readiness import read_readiness
from durable.authority.recovery import region_leases
from durable.authority.recovery.fence import fence, lease_fenced
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.region_leases import renew, settle_ahead
from durable.health.regions import unready
from durable.model.fleet.region_life import MARGIN, RegionFact, RegionLease
from durable.model.ids import NodeId, RegionId
from durable.model.refusal import RefusalCode
from durable.model.resources import Resources
from tests.authority.moved_clock import move_clock, stop_clock
from tests.authority.overrides.asking import give_keys, in_force
from tests.authority.world import EAST, T0, TEST, WEST, World, node

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
AHEAD = """
    UPDATE global.regions SET lease_expires_at = lease_expires_at + %s WHERE region = 'us-west'
"""


async def renewed(world: World, now: datetime, lease_seconds: float = 60) -> RegionLease:
    return await renew(world.databases, EAST, "w", lease_seconds=lease_seconds, now=now)


async def codes(world: World, now: datetime) -> list[str]:
    url = world.databases.url_of(EAST)
    return [one.code for one in unready(await read_readiness(world.databases, url, now=now))]


def left(world: World, now: datetime) -> float:
    """How much of the region's lease is left at this moment."""
    with psycopg.connect(world.databases.url_of(EAST), row_factory=namedtuple_row) as owner:
        held = held_lease(owner.execute(f"SELECT {HELD_LEASE} FROM regional.regions").fetchone())
    return 0.0 if held is None else held.seconds_left(now)


def write(world: World, statement: str, *values: object) -> None:
    """What clocks wrote that were elsewhere."""
    with psycopg.connect(world.databases.url_of(EAST)) as owner:
        owner.execute(statement.encode(), values)


@pytest.fixture
async def ahead(ready_world: World) -> World:
    """One renewal while the clock was an hour ahead; then it was set right."""
    await renewed(ready_world, T0 - SECOND)
    assert (await renewed(ready_world, T0 + HOUR)).expires_at == T0 + HOUR + timedelta(seconds=60)
    ready_world.now = T0
    return ready_world


async def test_a_lease_from_a_clock_that_was_ahead_lets_nothing_through(ahead: World) -> None:
    assert await ahead.refused(ahead.reserve(0)) is RefusalCode.CLOCK_JUMPED
    assert "clock_jumped" in await codes(ahead, T0)


async def test_it_counts_for_nothing_when_the_clock_gets_there_again(ahead: World) -> None:
    """An hour later that lease would be within its length; others may own the slots by then."""
    assert (await renewed(ahead, T0)).went_back_seconds == pytest.approx(3600)
    await fence(ahead.databases, EAST, expected_epoch=1, actor=TEST, reason="a drill")
    for later in (timedelta(), HOUR, HOUR + timedelta(seconds=30)):
        ahead.now = T0 + later
        assert await ahead.refused(ahead.reserve(0, epoch=2)) is RefusalCode.REGION_FENCED
        assert left(ahead, ahead.now) == 0


async def test_nothing_is_renewed_across_a_jump_and_the_next_renewal_counts(ahead: World) -> None:
    before = await read_fact(ahead.databases, EAST)
    jumped = await renewed(ahead, T0)
    assert (jumped.expires_at, jumped.went_back_seconds) == (None, pytest.approx(3600))
    after = await read_fact(ahead.databases, EAST)
    assert after.lease_expires_at == before.lease_expires_at
    assert await ahead.refused(ahead.reserve(0)) is RefusalCode.CLOCK_JUMPED
    assert "clock_jumped" in await codes(ahead, T0)
    ahead.now = T0 + SECOND
    assert (await renewed(ahead, ahead.now)).expires_at == ahead.now + timedelta(seconds=60)
    assert await codes(ahead, ahead.now) == []
    await ahead.granted(ahead.reserve(1))
    ahead.now += timedelta(seconds=61)
    assert await ahead.refused(ahead.reserve(2)) is RefusalCode.REGION_LEASE_LAPSED


async def test_a_clock_that_goes_back_during_a_renewal_renews_nothing(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The region's clock is read first, and again under the lock."""
    world = ready_world
    await renewed(world, T0 - SECOND)
    read = region_leases.lock_fact

    async def then_set_right(connection: AsyncConnection, region: RegionId) -> RegionFact:
        move_clock(world.databases.url_of(EAST), T0)
        return await read(connection, region)

    monkeypatch.setattr(region_leases, "lock_fact", then_set_right)
    url = world.databases.url_of(EAST)
    stop_clock(url, T0 + HOUR)
    async with Databases(url) as databases:
        lease = await renew(databases, EAST, "w", lease_seconds=60)
    assert lease.expires_at is None
    assert lease.went_back_seconds == pytest.approx(3600)
    assert left(world, T0) == 0


@pytest.mark.parametrize(
    ("back", "is_refused"),
    [(timedelta(seconds=0.9), False), (timedelta(seconds=1.1), True), (HOUR, True)],
)
async def test_a_commit_remembers_the_clock_that_it_saw(
    ready_world: World, back: timedelta, is_refused: bool
) -> None:
    world = ready_world
    world.now = T0
    await renewed(world, T0, lease_seconds=7200)
    world.now = T0 + HOUR + timedelta(seconds=2)
    await world.with_nodes(lease_seconds=3600)
    await world.granted(world.reserve(0))
    world.now -= back
    if is_refused:
        assert await world.refused(world.reserve(1)) is RefusalCode.CLOCK_JUMPED
    else:
        await world.granted(world.reserve(1))


async def test_a_refusal_for_a_jump_wedges_no_claim(ready_world: World) -> None:
    world = ready_world
    await renewed(world, T0)
    token = (await world.granted(world.reserve(0))).token
    await renewed(world, T0 + HOUR)
    bind = world.bind(token, 0)
    assert await world.refused(bind) is RefusalCode.CLOCK_JUMPED
    await renewed(world, T0)
    await renewed(world, T0)
    await world.granted(bind)


async def test_leases_of_nodes_last_no_longer_than_their_length_then(
    ready_world: World,
) -> None:
    """A node that fell silent while the clock was ahead would pass for ready for an hour."""
    world = ready_world
    await renewed(world, T0)
    world.now = T0 + HOUR
    await world.with_nodes(node("n2"), lease_seconds=30)
    await renewed(world, T0 + HOUR)
    await renewed(world, T0)
    await renewed(world, T0)
    world.now = T0 + timedelta(seconds=29)
    await renewed(world, world.now)
    await world.granted(world.reserve(0, "n2"))
    world.now = T0 + timedelta(seconds=31)
    assert await world.refused(world.reserve(1, "n2")) is RefusalCode.NODE_STALE


async def test_heartbeats_around_it_renew_as_ever(ready_world: World) -> None:
    world = ready_world
    await renewed(world, T0)
    world.now = T0 + HOUR
    await world.with_nodes(node("n2"), lease_seconds=30)
    await renewed(world, T0 + HOUR)
    for heartbeat, region in ((T0, T0), (T0 + SECOND, T0 + SECOND)):
        sessions = {NodeId("n2"): world.sessions["n2"]}
        beaten = await renew_leases(
            world.databases, EAST, sessions, lease_ttl_seconds=30, now=heartbeat
        )
        assert beaten == {"n2"}
        await renewed(world, region)
    world.now = T0 + timedelta(seconds=30)
    await world.granted(world.reserve(0, "n2"))
    world.now = T0 + timedelta(seconds=32)
    assert await world.refused(world.reserve(1, "n2")) is RefusalCode.NODE_STALE


async def test_a_fence_waits_no_longer_than_a_lease_after_the_global_clock_went_back(
    two_regions: World,
) -> None:
    """The lease was given in the past, so it is over within its length, whatever its row says."""
    databases = two_regions.databases
    await renew(databases, WEST, "w", lease_seconds=60)
    write(two_regions, AHEAD, HOUR)
    before = await read_fact(databases, WEST)
    done = await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="a drill")
    after = await read_fact(databases, WEST)
    assert after.lease_expires_at is not None
    assert after.lease_expires_at <= after.read_at + timedelta(seconds=60)
    assert before.lease_expires_at is not None
    assert before.lease_expires_at > after.lease_expires_at + MARGIN
    assert done.is_in_region
    assert await violations_everywhere(databases) == []


async def test_a_lost_region_does_not_pass_for_one_that_lives_then(two_regions: World) -> None:
    """Nobody renews its lease any more, and it would seem to last for an hour."""
    databases = two_regions.databases
    await renew(databases, WEST, "w", lease_seconds=60)
    assert not (await read_fact(databases, WEST)).is_lease_ahead
    await fence(databases, WEST, expected_epoch=1, actor=TEST, reason="a drill")
    await lease_fenced(databases, WEST, 2, goes_on=True)
    write(two_regions, AHEAD, HOUR)
    await lease_fenced(databases, WEST, 2, goes_on=False)
    fact = await read_fact(databases, WEST)
    assert fact.is_lease_ahead
    await settle_ahead(databases, WEST)
    fact = await read_fact(databases, WEST)
    assert not fact.is_lease_ahead
    assert fact.movable_at is not None
    assert fact.movable_at <= fact.read_at + timedelta(seconds=60) + MARGIN


async def test_the_next_renewal_mends_the_global_lease(two_regions: World) -> None:
    databases = two_regions.databases
    await renew(databases, WEST, "w", lease_seconds=60)
    write(two_regions, AHEAD, HOUR)
    await renew(databases, WEST, "w", lease_seconds=60)
    fact = await read_fact(databases, WEST)
    assert fact.lease_expires_at is not None
    assert fact.lease_expires_at <= fact.read_at + timedelta(seconds=60)


async def test_what_is_held_keeps_what_was_left_of_it(ready_world: World) -> None:
    """It would hold node and quota for an hour longer, and nobody could bind it meanwhile."""
    world = ready_world
    world.now = T0 + HOUR
    await world.with_nodes(node("n2"))
    await renewed(world, world.now)
    token = (await world.granted(world.reserve(0, "n2"))).token
    await renewed(world, T0)
    world.now = T0 + timedelta(seconds=29)
    assert await world.refused(world.expire(token, 0)) is RefusalCode.LEASE_ACTIVE
    world.now = T0 + timedelta(seconds=31)
    await world.granted(world.expire(token, 0))
    assert await violations_everywhere(world.databases) == []


async def test_overrides_that_began_ahead_keep_what_was_left_of_them(ready_world: World) -> None:
    """Those that began before go on by the clock as it is now, and budgets of people always do."""
    world = ready_world
    databases, now = world.databases, datetime.now(UTC)
    await give_keys(databases)
    await renewed(world, now)
    quota, there = {"region": "us-east", "tenant": "risk"}, {"region": "us-east"}
    amount = {"amount": {"cpu": 1, "memory": "1Gi"}}
    kept = {**amount, "incident": "inc-1"}
    await in_force(databases, EAST, "emergency-quota", quota, effect=amount, name="o-1")
    await in_force(databases, EAST, "recovery-budget", there, effect=kept, name="o-2")
    world.now = now
    await world.with_headroom(Resources.of(1000, 1024))
    before, seen = ends(world), now + MARGIN * 20
    await renewed(world, seen)
    assert (await renewed(world, now + MARGIN * 10)).went_back_seconds is not None
    assert ends(world) == before
    settled = await renewed(world, now - HOUR)
    assert settled.went_back_seconds == pytest.approx((MARGIN * 10 + HOUR).total_seconds())
    after = ends(world)
    assert after.pop("headroom") == before.pop("headroom")
    assert after == {name: at - MARGIN * 10 - HOUR for name, at in before.items()}
    assert await violations_everywhere(databases) == []


def ends(world: World) -> dict[str, datetime]:
    """When overrides, draws and budgets end in us-east."""
    with psycopg.connect(world.databases.url_of(EAST)) as owner:
        rows = owner.execute(
            "SELECT 'override/' || override || '/copy', expires_at FROM regional.overrides"
            " UNION ALL SELECT override || '/draw', expires_at FROM regional.emergency_draws"
            " UNION ALL SELECT budget, expires_at FROM regional.recovery_budgets"
        ).fetchall()
    return dict(rows)
