"""Doctor compares slots, claims and grants of several databases with one another."""

import pytest
from sqlalchemy import text

from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.reads.across import (
    ACROSS,
    ONE_CLAIM,
    ONE_OWNER,
    WITHIN_BOOKS,
    compare_databases,
)
from durable.authority.reads.claims import read_claims
from durable.authority.reads.invariants import check_invariants
from durable.authority.recovery.fence import fence
from durable.authority.slots.ownership import SlotRegistry
from durable.model.resources import Resources
from tests.authority.restores.conftest import GLOBAL, Apart
from tests.authority.restores.test_declared import release_all
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, TEST, WEST, World


def registry(world: World) -> SlotRegistry:
    return SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)


async def broken(world: World) -> set[str]:
    found, _ = await check_invariants(world.databases)
    return {one.invariant for one in found if one.invariant in ACROSS}


async def test_databases_that_agree_are_content(apart: Apart) -> None:
    world = await apart.open()
    await registry(world).assign([0], WEST, transfer="t0")
    await world.at(WEST).running(0, node="w1")
    assert await compare_databases(world.databases) == []


async def test_a_slot_that_two_regions_hold_is_named(apart: Apart) -> None:
    world = await apart.open()
    await registry(world).assign([0], WEST, transfer="t0")
    await world.at(WEST).running(0, node="w1")
    world = await apart.back_up(WEST)
    west = world.at(WEST)
    (one,) = await read_claims(world.databases, WEST)
    await west.granted(west.evict(one.token, 0, is_forced=True))
    await fence(world.databases, WEST, expected_epoch=1, actor=TEST, reason="lost")
    world = await _moved(world)
    await world.running(0, node="e1")
    world = await apart.restore(WEST)
    await _open_fact(world)
    assert await broken(world) == {ONE_CLAIM, ONE_OWNER}


async def _moved(world: World) -> World:
    await release_all(world, 2)
    await registry(world).transfer([0], WEST, EAST, transfer="t1", actor=TEST)
    return world


async def _open_fact(world: World) -> None:
    """As a global side that opened it before anybody looked at what the region had left."""
    async with world.databases.at_global("durable_recovery").begin() as connection:
        await connection.execute(
            text("UPDATE global.regions SET state = 'open' WHERE region = :region"),
            {"region": WEST},
        )


@pytest.mark.parametrize("side", [GLOBAL, WEST])
async def test_grant_beyond_the_books_is_named(apart: Apart, side: str) -> None:
    world = await apart.open()
    world = await apart.back_up(side)
    source, receiver = (EAST, WEST) if side == GLOBAL else (WEST, EAST)
    moved = GrantTransfer(
        id="t1", tenant=RISK, amount=Resources.of(1_000, 0), from_region=source,
        to_region=receiver, actor=TEST,
    )  # fmt: skip
    await transfer_grant(world.databases, moved)
    assert await broken(world) == set()
    world = await apart.restore(side)
    assert await broken(world) == {WITHIN_BOOKS}
