"""A claim that several want replaced is, until the last of them has taken it back."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from durable.authority.policies.regions import leave_region
from durable.authority.reads.invariants import violations_everywhere
from durable.authority.reads.replicas import read_replicas
from durable.authority.reads.shares import read_shares
from durable.authority.slots.replacements import mark_replaced
from durable.authority.slots.shares import Publication, PublishedShare, open_shares, publish
from durable.model.overrides.override import Override
from durable.model.resources import Resources
from durable.model.work.share import DesiredShare
from durable.model.work.workload import WorkloadSpec
from tests.authority.overrides.asking import ended, give_keys, in_force
from tests.authority.policies.world import everywhere, order
from tests.authority.world import API, EAST, RISK, TEST, World

ZONE = {"region": "us-east", "zone": "a"}
MOVE = {"move": True}
SPEC = WorkloadSpec(replicas=2, resources=Resources.of(1000, 512))

Mark = Callable[[World, int], Awaitable[object]]


@pytest.fixture
async def world(ready_world: World) -> World:
    ready_world.now = datetime.now().astimezone()
    await give_keys(ready_world.databases)
    await everywhere(ready_world)
    return ready_world


async def by_request(world: World, token: int) -> None:
    """As `durable replace` does it."""
    await mark_replaced(world.databases, EAST, [token], request="r-7", actor=TEST, reason="leaks")


async def by_reroll(world: World, token: int) -> None:
    back = await order(world, "rollback", reroll=True)
    assert (await leave_region(world.databases, EAST, back)).report.shares[0].replaced == 1


async def to_replace(world: World) -> int:
    """As a plan reads it, and as the status does."""
    read = await read_replicas(world.databases, EAST, RISK, API)
    (share,) = await read_shares(world.databases, EAST)
    planned = sum(one.is_marked for one in read.claims)
    assert share.report().to_replace == planned
    return planned


@pytest.mark.parametrize("mark", [by_request, by_reroll])
@pytest.mark.parametrize("override_first", [True, False])
async def test_what_another_wants_replaced_still_is_after_an_override_ended(
    world: World, mark: Mark, override_first: bool
) -> None:
    token = await world.running(0, policy_revision=2)
    if not override_first:
        await mark(world, token)
    await in_force(world.databases, EAST, "avoid-zone", ZONE, effect=MOVE)
    if override_first:
        await mark(world, token)
    assert await to_replace(world) == 1
    await ended(world.databases, EAST)
    assert await to_replace(world) == 1
    assert await violations_everywhere(world.databases) == []


# ── acting on a mark ────────────────────────────────────────────────────────────────────────────


def replacement(token: int) -> Publication:
    """What a division writes that takes slot 0 from its share for nothing but a mark."""
    share = DesiredShare(slots=(), spec=SPEC, revision=2)
    shares = (PublishedShare(RISK, API, 1, share),)
    return Publication(RISK, API, 2, None, shares, (token,))


async def let_expire(world: World, override: Override) -> None:
    """By its time alone, and the region was not told; nobody but the owner of the tables could."""
    async with world.databases.at_region(EAST, "durable_override").begin() as connection:
        await connection.execute(text("SET LOCAL ROLE NONE"))
        await connection.execute(text("ALTER TABLE regional.overrides DISABLE TRIGGER USER"))
        query = text("UPDATE regional.overrides SET expires_at = :at")
        await connection.execute(query, {"at": override.expires_at - timedelta(hours=1)})
        await connection.execute(text("ALTER TABLE regional.overrides ENABLE TRIGGER USER"))


async def shares_written(world: World) -> int:
    return len(await open_shares(world.databases, EAST))


async def test_nothing_is_replaced_for_a_mark_that_lapsed_after_it_was_read(world: World) -> None:
    token = await world.running(0, policy_revision=2)
    override = await in_force(world.databases, EAST, "avoid-zone", ZONE, effect=MOVE)
    await let_expire(world, override)
    assert await publish(world.databases, EAST, [replacement(token)]) == [False]
    assert await shares_written(world) == 0
    await by_request(world, token)
    assert await publish(world.databases, EAST, [replacement(token)]) == [True]
    assert await shares_written(world) == 1
    assert await violations_everywhere(world.databases) == []


async def test_doctor_finds_a_replacement_for_an_override_past_its_time(world: World) -> None:
    token = await world.running(0, policy_revision=2)
    override = await in_force(world.databases, EAST, "avoid-zone", ZONE, effect=MOVE)
    assert await publish(world.databases, EAST, [replacement(token)]) == [True]
    assert await violations_everywhere(world.databases) == []
    await let_expire(world, override)
    (found,) = await violations_everywhere(world.databases)
    assert found.invariant == "S8: nothing is replaced for an override past its time"
    assert "override/o-1" in found.row
