"""A fleet starts with the policy that is shipped, and keeps whatever was chosen since."""

from typing import Any

import pytest
from sqlalchemy import text

from durable.authority.fleet.policies import (
    publish_policy,
    read_revision,
    set_policy_state,
    use_shipped_policy,
)
from durable.authority.fleet.regions import add_region
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import PolicyState
from durable.scheduling.policies import first_policy
from tests.authority.world import EAST, TEST, WEST, World

SHIPPED: dict[str, Any] = first_policy().model_dump(mode="json")


@pytest.fixture
async def regions(world: World) -> World:
    for region in (EAST, WEST):
        await add_region(world.databases, region, TEST)
    return world


async def use(world: World) -> None:
    await use_shipped_policy(world.databases, [EAST, WEST], TEST)


async def active(world: World, region: RegionId) -> int | None:
    query = text("""
        SELECT revision FROM regional.policy_states WHERE region = :region AND state = 'active'
    """)
    async with world.databases.at_region(region, "durable_reader").begin() as connection:
        return (await connection.execute(query, {"region": region})).scalar_one_or_none()


async def test_a_new_fleet_starts_with_what_is_shipped_as_revision_one(regions: World) -> None:
    for _ in range(2):
        await use(regions)
        assert (await active(regions, EAST), await active(regions, WEST)) == (1, 1)
    assert (await read_revision(regions.databases, 1)).spec == SHIPPED
    with pytest.raises(RefusedError) as no:
        await read_revision(regions.databases, 2)
    assert no.value.refusal.code is RefusalCode.UNKNOWN_POLICY


async def test_what_somebody_published_first_stays(regions: World) -> None:
    mine = {**SHIPPED, "rounds_per_attempt": 5}
    await publish_policy(regions.databases, 1, mine, TEST)
    await use(regions)
    assert await active(regions, EAST) == 1
    assert (await read_revision(regions.databases, 1)).spec == mine


async def test_a_region_without_an_active_revision_by_choice_stays_so(regions: World) -> None:
    await use(regions)
    await set_policy_state(regions.databases, EAST, 1, PolicyState.ROLLED_BACK, TEST)
    await use(regions)
    assert await active(regions, EAST) is None
