"""Nothing new starts on an emergency quota that is over, however it ended."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from durable.authority.overrides.copies import copy_override
from durable.authority.overrides.reads import read_effects
from durable.authority.reads.claims import read_claims
from durable.authority.reads.invariants import violations_everywhere
from durable.model.overrides.override import Override
from durable.model.refusal import RefusalCode
from tests.authority.overrides.asking import change, ended, give_keys, in_force, outcome
from tests.authority.world import EAST, World

DRAW = {"region": "us-east", "tenant": "risk"}
THREE = {"amount": {"cpu": 3, "memory": "6Gi"}}
TTL = timedelta(minutes=30)
# So that nothing but the quota ends.
LEASES = {"reservation": 3_600, "node": 7_200}
# By slot: how far each was when the quota ended.
HELD, BOUND, STARTED = 0, 1, 2


@pytest.fixture
async def world(ready_world: World) -> World:
    """The tenant's grant has no room; commits go by the database's clock, or by a later one."""
    world = ready_world
    world.now = datetime.now().astimezone()
    await give_keys(world.databases)
    await world.with_nodes(lease_seconds=LEASES["node"])
    async with world.databases.at_region(EAST, "durable_quota").begin() as connection:
        await connection.execute(
            text("UPDATE regional.grants SET owed_cpu_millis = granted_cpu_millis")
        )
    return world


async def draw_on_it(world: World) -> tuple[Override, list[int]]:
    """An emergency quota, and on it one claim that is held, one that is bound, one that runs."""
    override = await in_force(world.databases, EAST, "emergency-quota", DRAW, effect=THREE, ttl=TTL)
    tokens: list[int] = []
    for slot in (HELD, BOUND, STARTED):
        token = await outcome(world, world.reserve(slot, lease_ttl_seconds=LEASES["reservation"]))
        assert isinstance(token, int)
        tokens.append(token)
    for slot in (BOUND, STARTED):
        assert await outcome(world, world.bind(tokens[slot], slot)) == tokens[slot]
    assert await outcome(world, world.start(tokens[STARTED], STARTED)) == tokens[STARTED]
    return override, tokens


End = Callable[[World, Override], Awaitable[datetime | None]]


async def revoke(world: World, _: Override) -> None:
    """The region is told; its own time is not over."""
    await ended(world.databases, EAST)


async def wait(_: World, override: Override) -> datetime:
    """By its time alone, and nobody tells the region: at this very moment it is over."""
    return override.expires_at


@pytest.mark.parametrize("end", [revoke, wait])
async def test_what_has_not_started_when_it_ends_never_does(world: World, end: End) -> None:
    override, tokens = await draw_on_it(world)
    now = await end(world, override)
    assert await outcome(world, world.bind(tokens[HELD], HELD), now) is RefusalCode.DRAW_ENDED
    assert await outcome(world, world.start(tokens[BOUND], BOUND), now) is RefusalCode.DRAW_ENDED
    assert await outcome(world, world.reserve(3), now) is RefusalCode.GRANT_EXHAUSTED
    assert await violations_everywhere(world.databases) == []
    # What was refused keeps its claim until its placement releases it, and decides again.
    for slot in (HELD, BOUND):
        assert await outcome(world, world.release(tokens[slot], slot), now) == tokens[slot]
    claims = await read_claims(world.databases, EAST)
    assert [(one.slot, str(one.state)) for one in claims] == [(STARTED, "starting")], "it goes on"
    (effect,) = (await read_effects(world.databases, EAST)).values()
    assert effect.used == (1000, 1024, 0), "and is shown as over quota"
    assert await violations_everywhere(world.databases) == []


async def test_up_to_its_last_moment_a_claim_on_it_is_started(world: World) -> None:
    override, tokens = await draw_on_it(world)
    now = override.expires_at - timedelta(microseconds=1)
    assert await outcome(world, world.start(tokens[BOUND], BOUND), now) == tokens[BOUND]


async def test_a_claim_on_it_is_started_after_its_time_was_extended(world: World) -> None:
    override, tokens = await draw_on_it(world)
    longer = await change(world.databases, "extend", by=TTL, who="bob", request_id="r-3")
    await copy_override(world.databases, EAST, longer.target)
    now = override.expires_at
    assert await outcome(world, world.bind(tokens[HELD], HELD), now) == tokens[HELD]
    assert await outcome(world, world.start(tokens[HELD], HELD), now) == tokens[HELD]
    late = world.start(tokens[BOUND], BOUND)
    assert await outcome(world, late, longer.target.expires_at) is RefusalCode.DRAW_ENDED


async def test_another_emergency_quota_does_not_start_what_was_reserved_on_the_first(
    world: World,
) -> None:
    _, tokens = await draw_on_it(world)
    await ended(world.databases, EAST)
    await in_force(world.databases, EAST, "emergency-quota", DRAW, effect=THREE, name="o-2")
    assert await outcome(world, world.start(tokens[BOUND], BOUND)) is RefusalCode.DRAW_ENDED
    assert await outcome(world, world.release(tokens[BOUND], BOUND)) == tokens[BOUND]
    again = await outcome(world, world.reserve(BOUND, attempt=2))
    assert isinstance(again, int)
    assert await outcome(world, world.bind(again, BOUND, attempt=2)) == again
    assert await outcome(world, world.start(again, BOUND, attempt=2)) == again
