"""Each renewal of a region's lease has a number: whoever knows less than the other went back."""

import pytest
from sqlalchemy import text

from durable.authority.db.errors import WentBackError
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.region_leases import renew
from durable.authority.restores.found import read_went_back
from durable.authority.slots.ownership import SlotRegistry
from durable.health.findings import FindingCode
from durable.health.regions import went_back
from tests.authority.restores.conftest import GLOBAL, Apart
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, WEST, World

# The clock of the world is years ahead.
LONG = 10**9


async def renewed(world: World) -> None:
    await renew(world.databases, WEST, "w", lease_seconds=LONG, now=world.now)


async def test_both_sides_keep_the_number_of_each_renewal(apart: Apart) -> None:
    world = await apart.open()
    for number in (1, 2, 3):
        await renewed(world)
        fact = await read_fact(world.databases, WEST)
        assert (fact.lease_number, fact.known_number) == (number, number)
    assert not await read_went_back(world.databases)


async def test_a_renewal_that_the_region_never_received_is_no_restore(apart: Apart) -> None:
    """A worker died between the two halves of it, or could not reach the region."""
    world = await apart.open()
    await renewed(world)
    before = apart.urls[WEST]
    world = await apart.back_up(WEST)
    engine = world.databases.at_global("durable_region")

    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE global.regions SET lease_number = lease_number + 1 WHERE region = :r"),
            {"r": WEST},
        )
    assert apart.urls[WEST] == before
    await renewed(world)
    assert not await read_went_back(world.databases)


@pytest.mark.parametrize("renewals_lost", [1, 3])
async def test_a_region_that_went_back_gets_no_lease_and_changes_nothing(
    apart: Apart, renewals_lost: int
) -> None:
    world = await apart.open()
    await renewed(world)
    registry = SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)
    await registry.assign([0, 1], WEST, transfer="t0")
    world = await apart.back_up(WEST)
    for _ in range(renewals_lost):
        await renewed(world)
    world = await apart.restore(WEST)

    with pytest.raises(WentBackError, match="has shown to have had"):
        await renewed(world)
    (found,) = await read_went_back(world.databases)
    assert found.names == (WEST,)
    assert "durable restored us-west --reason" in found.why
    with pytest.raises(WentBackError, match="was restored from an older copy"):
        await world.at(WEST).granted(world.at(WEST).reserve(0, node="w1"))
    with pytest.raises(WentBackError):  # and again
        await renewed(world)
    # The others go on.
    registry = SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)
    await registry.assign([2], EAST, transfer="t1")
    await renew(world.databases, EAST, "w", lease_seconds=LONG, now=world.now)
    await world.running(2, node="e1")


async def test_a_global_side_that_went_back_gives_no_lease_and_changes_nothing(
    apart: Apart,
) -> None:
    world = await apart.open()
    await renewed(world)
    registry = SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)
    await registry.assign([0], WEST, transfer="t0")
    world = await apart.back_up(GLOBAL)
    await renewed(world)
    world = await apart.restore(GLOBAL)

    with pytest.raises(WentBackError, match="knows of 1 renewals, and the region has had 2"):
        await renewed(world)
    (found,) = await read_went_back(world.databases)
    assert found.names == (GLOBAL, EAST)
    registry = SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)
    with pytest.raises(WentBackError, match="durable restored --global"):
        await registry.assign([1], EAST, transfer="t1")
    with pytest.raises(WentBackError):
        await renew(world.databases, EAST, "w", lease_seconds=LONG, now=world.now)
    # What the region was given goes on within its lease.
    await world.at(WEST).running(0, node="w1")


async def test_whoever_went_back_is_named_with_the_runbook(apart: Apart) -> None:
    world = await apart.open()
    world = await apart.back_up(GLOBAL, WEST)
    await renewed(world)
    world = await apart.restore(WEST)
    with pytest.raises(WentBackError):
        await renewed(world)
    (region,) = went_back(await read_went_back(world.databases))
    assert region.code is FindingCode.REGION_WENT_BACK
    assert region.runbook == "runbooks/region-restored.md"
    assert region.names == (WEST,)
    assert "durable restored us-west" in region.sentence
