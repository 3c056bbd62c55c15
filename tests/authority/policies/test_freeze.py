"""A freeze stops a revision wherever it is, and only in the regions that are frozen."""

import psycopg
import pytest
from temporalio.client import Client

from durable.activities.policy import PolicyActivities
from durable.authority.policies.phases import reach_phase, watch_region
from durable.authority.policies.region_reads import read_in_force
from durable.authority.policies.regions import enter_region
from durable.model.ids import RegionId
from durable.model.policy.policy import Guardrails
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import PolicyState
from tests.authority.overrides.asking import ended, give_keys, in_force, propose
from tests.authority.policies.world import order, published, state
from tests.authority.world import EAST, World

AT_ONCE = Guardrails(bake_seconds=0, step_seconds=0)


async def freeze(world: World, region: str) -> None:
    await give_keys(world.databases)
    await propose(world.databases, "policy-freeze", {"region": region})


async def advance(world: World) -> str:
    """What the revision waits for after every step that it could take."""
    client = await Client.connect("localhost:1", lazy=True)
    activities = PolicyActivities(world.databases, client)
    return (await activities.advance_policy(2)).waits_for


async def test_a_region_that_was_watched_before_the_freeze_is_not_entered(
    ready_world: World,
) -> None:
    world = await published(ready_world, guardrails=AT_ONCE)
    await watch_region(world.databases, await order(world, "promote"), EAST, 0.0)
    await freeze(world, EAST)
    assert "ann froze the policy of" in await advance(world)
    assert await state(world, 2) is PolicyState.PUBLISHED


async def test_a_canary_does_not_widen_while_its_region_is_frozen(ready_world: World) -> None:
    world = await published(ready_world)
    promoted = await order(world, "promote")
    await freeze(world, EAST)
    with pytest.raises(RefusedError, match="ann froze") as no:
        await reach_phase(world.databases, promoted, PolicyPhase.WIDENING)
    assert no.value.refusal.code is RefusalCode.POLICY_FROZEN


async def test_a_freeze_of_one_region_lets_another_be_the_canary(ready_world: World) -> None:
    world = await published(ready_world)
    await freeze(world, EAST)
    with pytest.raises(RefusedError, match="ann froze"):
        await order(world, "promote")
    promoted = await order(world, "promote", canary=RegionId("us-west"))
    assert promoted.phase is PolicyPhase.CANARY


async def test_a_step_that_was_under_way_finds_the_freeze_in_its_region(
    ready_world: World,
) -> None:
    """It asked the global side before the freeze, and enters the region after it."""
    world = await published(ready_world)
    promoted = await order(world, "promote")
    await give_keys(world.databases)
    await in_force(world.databases, EAST, "policy-freeze", {})
    with pytest.raises(RefusedError, match="ann froze the policy everywhere") as no:
        await enter_region(world.databases, EAST, promoted, PolicyState.CANARY)
    assert no.value.refusal.code is RefusalCode.POLICY_FROZEN
    assert await state(world, 2) is PolicyState.PUBLISHED
    await ended(world.databases, EAST)
    await enter_region(world.databases, EAST, promoted, PolicyState.CANARY)
    assert await state(world, 2) is PolicyState.CANARY


async def test_a_freeze_whose_time_is_over_lets_a_region_be_entered(ready_world: World) -> None:
    world = await published(ready_world)
    promoted = await order(world, "promote")
    await give_keys(world.databases)
    await in_force(world.databases, EAST, "policy-freeze", {})
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("UPDATE regional.overrides SET number = number + 1,"
                      " expires_at = now() - interval '1 second'")  # fmt: skip
    await enter_region(world.databases, EAST, promoted, PolicyState.CANARY)
    assert await state(world, 2) is PolicyState.CANARY


async def test_a_freeze_of_one_region_does_not_keep_the_others_waiting(ready_world: World) -> None:
    """The first by name is frozen: the revision comes into force everywhere else."""
    first, last = RegionId("a-first"), RegionId("z-last")
    world = await (await ready_world.with_region(first)).with_region(last)
    await published(world, guardrails=AT_ONCE)
    await freeze(world, first)
    await order(world, "promote", canary=EAST)
    assert "ann froze the policy of region a-first" in await advance(world)
    active, databases = {2: PolicyState.ACTIVE}, world.databases
    assert await read_in_force(databases, first) == {1: PolicyState.ACTIVE}
    assert [await read_in_force(databases, region) for region in (EAST, last)] == [active, active]
