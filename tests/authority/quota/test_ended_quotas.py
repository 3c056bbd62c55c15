"""What runs on an emergency quota that is over counts, wherever grant is counted, until it ends."""

from datetime import datetime

import pytest
from sqlalchemy import text

from durable.authority.quota.grants import read_grant_left, read_overdrafts
from durable.authority.quota.quotas import set_quota
from durable.authority.quota.rebalancing import reclaim
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.reads.census import take_census
from durable.authority.reads.invariants import violations_everywhere
from durable.controllers.quota import QuotaController
from durable.model.ids import RegionId
from durable.model.placement.intents import Granted, Refused
from durable.model.refusal import RefusalCode
from durable.model.resources import ZERO, Resources
from tests.authority.invariants import assert_promises_hold
from tests.authority.overrides.asking import ended, give_keys, in_force
from tests.authority.quota.test_grants import billing, code_of, cpu, moving, split, top_up_west
from tests.authority.quota.test_quota_controller import wait_in
from tests.authority.world import BILLING, EAST, TEST, WEST, World, node

BIG = {"cpu_millis": 64_000, "memory_mib": 65_536}
SIX = {"amount": {"cpu": 6, "memory": "6Gi"}}
COUNTS = "S3: what runs on an emergency quota that is over counts against the grant"


@pytest.fixture
async def world(two_regions: World) -> World:
    """Large nodes; commits go by the database's own time."""
    world = two_regions
    world.now = datetime.now().astimezone()
    await give_keys(world.databases)
    for region, name in ((EAST, "e1"), (WEST, "w1")):
        await world.with_nodes(node(name, region=region, capacity=BIG), region=region)
    await set_quota(world.databases, BILLING, hard=ZERO, actor=TEST)
    await world.with_slots(17, tenant=BILLING)
    return world


async def overdraw(world: World, *, hard: int, east: int, west: int = 0) -> list[int]:
    """Everything granted in us-east is in use, and six cores more on a quota that is over."""
    await billing(world, hard=hard, east=east, west=west)
    scope = {"region": str(EAST), "tenant": str(BILLING)}
    await in_force(world.databases, EAST, "emergency-quota", scope, effect=SIX)
    tokens = [await reserve(world, slot) for slot in range(east + 6)]
    await ended(world.databases, EAST)
    return [token for token in tokens if isinstance(token, int)]


async def reserve(world: World, slot: int, attempt: int = 1) -> int | RefusalCode:
    here = world.at(EAST)
    intent = here.reserve(slot, node="e1", tenant=BILLING, resources=cpu(1), attempt=attempt)
    (outcome,) = await here.send(intent)
    return outcome.refusal.code if isinstance(outcome, Refused) else outcome.token


async def release(world: World, tokens: list[int], slots: range) -> None:
    here = world.at(EAST)
    for slot in slots:
        await here.granted(here.release(tokens[slot], slot, tenant=BILLING))


async def used(world: World) -> Resources:
    census = await take_census(world.databases)
    (tenant,) = (one for one in census.tenants if one.quota.tenant == BILLING)
    return tenant.used


async def free(world: World, region: RegionId = EAST) -> Resources:
    return (await read_grant_left(world.databases, region, BILLING)).free


async def test_what_falls_free_is_not_given_away_while_more_runs_than_is_granted(
    world: World,
) -> None:
    tokens = await overdraw(world, hard=10, east=10)
    assert await used(world) == cpu(16), "and everybody sees it"
    await release(world, tokens, range(6))
    assert await free(world) == ZERO, "ten of ten are in use"
    await wait_in(world, WEST, 3)
    for now in (0, 100):
        await QuotaController(world.databases).once(now)
    assert await split(world.databases) == (0, 10, 0)
    assert await top_up_west(world.databases, 6) == 0
    for end in (WEST, None):
        giving = transfer_grant(world.databases, moving(1, EAST, end, id=f"to-{end}"))
        assert await code_of(giving) is RefusalCode.GRANT_IN_USE
    assert await reserve(world, 0, attempt=2) is RefusalCode.GRANT_EXHAUSTED
    await assert_promises_hold(world.databases)

    await release(world, tokens, range(10, 13))
    await QuotaController(world.databases).once(200)
    assert await split(world.databases) == (0, 7, 3), "what ended on it is free again"
    await assert_promises_hold(world.databases)


async def test_grant_comes_to_what_is_overdrawn_before_anything_new_gets_some(
    world: World,
) -> None:
    await overdraw(world, hard=18, east=10)
    assert await read_overdrafts(world.databases, EAST) == {BILLING: cpu(6)}
    await wait_in(world, WEST, 3)
    controller = QuotaController(world.databases)
    await controller.once(0)
    assert await split(world.databases) == (2, 16, 0)
    assert await read_overdrafts(world.databases, EAST) == {}
    await controller.once(1)
    assert await split(world.databases) == (0, 16, 2), "what was left of the quota"
    await assert_promises_hold(world.databases)


async def test_what_another_region_does_not_use_covers_what_is_overdrawn(world: World) -> None:
    await overdraw(world, hard=14, east=10, west=4)
    await wait_in(world, WEST, 3)
    await QuotaController(world.databases).once(0)
    assert await split(world.databases) == (0, 14, 0)
    assert await read_overdrafts(world.databases, EAST) == {BILLING: cpu(2)}


async def test_a_lowered_quota_takes_back_nothing_that_is_overdrawn(world: World) -> None:
    tokens = await overdraw(world, hard=10, east=10)
    await billing(world, hard=4)
    await release(world, tokens, range(8))
    east = [EAST, WEST]
    left = await reclaim(world.databases, BILLING, east, request="r1", actor=TEST)
    assert left == cpu(4), "two of the ten are free"
    await assert_promises_hold(world.databases)


async def test_what_is_not_requested_may_be_overdrawn(world: World) -> None:
    """A decision takes it so too: who asks for cpu alone does not wait for memory."""
    await overdraw(world, hard=20, east=10)
    await transfer_grant(world.databases, memoryless(10))
    here = world.at(EAST)
    asks = here.reserve(16, node="e1", tenant=BILLING, resources=Resources.of(1000))
    (outcome,) = await here.send(asks)
    assert isinstance(outcome, Granted), outcome
    assert await violations_everywhere(world.databases) == []


def memoryless(cores: int) -> GrantTransfer:
    more = moving(cores, None, EAST, id="cpu-alone")
    return more.model_copy(update={"amount": Resources.of(cores * 1000)})


async def test_doctor_sees_grant_that_left_although_it_was_overdrawn(world: World) -> None:
    tokens = await overdraw(world, hard=10, east=10)
    await release(world, tokens, range(6))
    async with world.databases.at_region(EAST, "durable_quota").begin() as connection:
        await connection.execute(
            text("""
                WITH region AS (UPDATE regional.regions SET version = version + 1
                                 WHERE region = 'us-east' RETURNING version)
                INSERT INTO regional.grant_changes
                       (region, transfer, tenant, cpu_millis, memory_mib, version, at)
                SELECT 'us-east', 'wrong', 'billing', -6000, 0, version, clock_timestamp()
                  FROM region
            """)
        )
    assert {one.invariant for one in await violations_everywhere(world.databases)} == {COUNTS}


async def test_doctor_sees_what_was_reserved_although_more_ran_than_was_granted(
    world: World,
) -> None:
    tokens = await overdraw(world, hard=10, east=10)
    await release(world, tokens, range(6))
    async with world.databases.at_region(EAST, "durable_override").begin() as connection:
        await connection.execute(text("SET LOCAL ROLE NONE"))
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        # As it was before what runs on an ended quota counted.
        await connection.execute(text("UPDATE regional.emergency_draws SET has_ended = false"))
        await connection.execute(text("UPDATE regional.emergency_draws SET tenant = 'risk'"))
    assert isinstance(await reserve(world, 0, attempt=2), int)
    async with world.databases.at_region(EAST, "durable_override").begin() as connection:
        await connection.execute(text("SET LOCAL ROLE NONE"))
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        await connection.execute(text("UPDATE regional.emergency_draws SET has_ended = true"))
        await connection.execute(text("UPDATE regional.emergency_draws SET tenant = 'billing'"))
    assert {one.invariant for one in await violations_everywhere(world.databases)} == {COUNTS}
