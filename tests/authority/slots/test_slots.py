"""A slot has one owner at every moment, however its hand-overs crash, repeat or come late."""

from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.reads.invariants import violations
from durable.authority.recovery.fence import fence
from durable.authority.slots.ownership import SlotRegistry
from durable.model.ids import RegionId, TenantId
from durable.model.placement.intents import ReleaseCause
from durable.model.refusal import RefusalCode, RefusedError
from tests.authority.invariants import assert_promises_hold, copies_of
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, TEST, WEST, World, seconds

NOWHERE = RegionId("nowhere")


class Crash(Exception):  # noqa: N818 - it stands for the end of a process
    """The caller died here."""


def registry_of(world: World) -> SlotRegistry:
    return SlotRegistry(world.databases, RISK, API, FIRST_DIVISION)


def crashing_after(step: str, world: World) -> SlotRegistry:
    """A registry whose caller dies once this step has committed."""
    registry = registry_of(world)
    whole = getattr(registry, step)

    async def then_crash(*arguments: Any, **named: Any) -> None:
        await whole(*arguments, **named)
        raise Crash(step)

    setattr(registry, step, then_crash)
    return registry


async def move(registry: SlotRegistry, *slots: int, back: bool = False) -> None:
    ends = (WEST, EAST) if back else (EAST, WEST)
    await registry.transfer(slots, *ends, transfer="t1", actor=TEST)


async def owners(world: World) -> dict[int, str | None]:
    """Who owns each slot by the global side."""
    async with world.databases.at_global("durable_reader").begin() as connection:
        rows = await connection.execute(text("SELECT slot, region FROM global.slots"))
        return {row.slot: row.region for row in rows}


async def copies(world: World) -> dict[int, str]:
    """Who holds each slot by the regions' own copies."""
    return {slot[2]: region for slot, region in await copies_of(world.databases)}


# ── assign ──────────────────────────────────────────────────────────────────────────────────────


async def test_an_assigned_slot_can_be_reserved_in_its_region_alone(two_regions: World) -> None:
    await registry_of(two_regions).assign([0, 1], EAST, transfer="t0")
    assert await owners(two_regions) == await copies(two_regions) == {0: EAST, 1: EAST}
    west = two_regions.at(WEST)
    assert await west.refused(west.reserve(0, node="w1")) is RefusalCode.SLOT_NOT_OWNED
    await two_regions.granted(two_regions.reserve(0, node="e1"))
    await assert_promises_hold(two_regions.databases)


async def test_assigning_again_is_harmless(two_regions: World) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0, 1], WEST, transfer="t0")
    await two_regions.at(WEST).running(0, node="w1")
    await registry.assign([1, 0, 1], WEST, transfer="t0")
    assert await copies(two_regions) == {0: WEST, 1: WEST}
    await assert_promises_hold(two_regions.databases)


async def test_a_slot_of_another_region_is_not_assigned_nor_are_its_neighbours(
    two_regions: World,
) -> None:
    registry = registry_of(two_regions)
    await registry.assign([1], WEST, transfer="t0")
    with pytest.raises(RefusedError, match="Slot 1 of risk/api belongs to us-west") as no:
        await registry.assign([0, 1, 2], EAST, transfer="t1")
    assert no.value.refusal.code is RefusalCode.SLOT_NOT_OWNED
    assert await owners(two_regions) == await copies(two_regions) == {1: WEST}


async def test_an_assignment_that_crashed_half_way_is_finished_by_the_same_call(
    two_regions: World,
) -> None:
    registry = registry_of(two_regions)

    async def crash(*_: object) -> None:
        raise Crash

    setattr(registry, "_copy", crash)  # noqa: B010
    with pytest.raises(Crash):
        await registry.assign([0], WEST, transfer="t0")
    await assert_promises_hold(two_regions.databases)
    assert await copies(two_regions) == {}

    await registry_of(two_regions).assign([0], WEST, transfer="t0")
    assert await owners(two_regions) == await copies(two_regions) == {0: WEST}


@pytest.mark.parametrize(
    ("tenant", "region", "code"),
    [
        (RISK, NOWHERE, RefusalCode.UNKNOWN_REGION),
        (TenantId("stranger"), EAST, RefusalCode.UNKNOWN_TENANT),
    ],
)
async def test_an_unknown_name_is_refused_before_anything_is_assigned(
    ready_world: World, tenant: TenantId, region: RegionId, code: RefusalCode
) -> None:
    before = await owners(ready_world)
    with pytest.raises(RefusedError) as no:
        await SlotRegistry(ready_world.databases, tenant, API, FIRST_DIVISION).assign(
            [9], region, transfer="t0"
        )
    assert no.value.refusal.code is code
    assert await owners(ready_world) == before


# ── transfer ────────────────────────────────────────────────────────────────────────────────────


async def test_a_released_slot_moves_and_is_placed_in_the_new_region(two_regions: World) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0, 1], EAST, transfer="t0")
    held = await two_regions.granted(two_regions.reserve(0, node="e1"))
    await two_regions.granted(two_regions.release(held.token))

    await move(registry, 0)
    assert await owners(two_regions) == await copies(two_regions) == {0: WEST, 1: EAST}
    again = two_regions.reserve(0, node="e1", attempt=2)
    assert await two_regions.refused(again) is RefusalCode.SLOT_NOT_OWNED
    await two_regions.at(WEST).running(0, node="w1")
    await assert_promises_hold(two_regions.databases)


async def test_a_claimed_slot_does_not_move_nor_do_its_neighbours(two_regions: World) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0, 1, 2], EAST, transfer="t0")
    token = await two_regions.running(1, node="e1")
    with pytest.raises(RefusedError, match=f"by token {token}") as no:
        await move(registry, 0, 1, 2)
    assert no.value.refusal.code is RefusalCode.SLOT_TAKEN
    assert await owners(two_regions) == await copies(two_regions) == dict.fromkeys(range(3), EAST)
    await two_regions.granted(two_regions.reserve(0, node="e1"))


async def test_a_slot_leaves_a_fenced_region_once_it_is_released_as_fenced(
    two_regions: World,
) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0], EAST, transfer="t0")
    token = await two_regions.running(0, node="e1")
    await fence(two_regions.databases, EAST, expected_epoch=1, actor=TEST, reason="its zone burns")
    with pytest.raises(RefusedError) as no:
        await move(registry, 0)
    assert no.value.refusal.code is RefusalCode.SLOT_TAKEN

    fenced = two_regions.at(EAST, epoch=2)
    fenced.now = seconds(600)
    await fenced.granted(fenced.release(token, cause=ReleaseCause.REGION_FENCED))
    await move(registry, 0)
    assert await owners(two_regions) == await copies(two_regions) == {0: WEST}
    await two_regions.at(WEST).running(0, node="w1")
    await assert_promises_hold(two_regions.databases)


async def test_a_transfer_sent_again_after_it_arrived_changes_nothing(two_regions: World) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0], EAST, transfer="t0")
    await move(registry, 0)
    await two_regions.at(WEST).running(0, node="w1")
    await move(registry, 0)
    assert await owners(two_regions) == await copies(two_regions) == {0: WEST}
    await assert_promises_hold(two_regions.databases)


@pytest.mark.parametrize("step", ["_held", "_take_back", "_hand_over", "_copy"])
async def test_a_transfer_that_crashed_is_finished_by_the_same_call(
    two_regions: World, step: str
) -> None:
    await registry_of(two_regions).assign([0, 1], EAST, transfer="t0")
    with pytest.raises(Crash):
        await move(crashing_after(step, two_regions), 0, 1)
    await assert_promises_hold(two_regions.databases)

    await move(registry_of(two_regions), 0, 1)
    assert await owners(two_regions) == await copies(two_regions) == {0: WEST, 1: WEST}
    await two_regions.at(WEST).running(0, node="w1")
    assert (
        await two_regions.refused(two_regions.reserve(0, node="e1")) is RefusalCode.SLOT_NOT_OWNED
    )
    await assert_promises_hold(two_regions.databases)


async def test_what_an_abandoned_transfer_took_can_be_given_back(two_regions: World) -> None:
    await registry_of(two_regions).assign([0], EAST, transfer="t0")
    with pytest.raises(Crash):
        await move(crashing_after("_take_back", two_regions), 0)
    first = two_regions.reserve(0, node="e1")
    assert await two_regions.refused(first) is RefusalCode.SLOT_NOT_OWNED

    await registry_of(two_regions).transfer([0], EAST, EAST, transfer="t2", actor=TEST)
    await two_regions.granted(two_regions.reserve(0, node="e1", attempt=2))
    await assert_promises_hold(two_regions.databases)


async def test_a_copy_delayed_past_the_next_hand_over_changes_nothing(two_regions: World) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0], EAST, transfer="t0")
    with pytest.raises(Crash):
        await move(crashing_after("_hand_over", two_regions), 0)
    await move(registry, 0, back=True)  # by somebody who did not wait for the copy

    await registry._copy(WEST, {0: 2})  # pyright: ignore[reportPrivateUsage]
    assert await owners(two_regions) == await copies(two_regions) == {0: EAST}
    await two_regions.granted(two_regions.reserve(0, node="e1"))
    await assert_promises_hold(two_regions.databases)


async def test_a_taking_back_delayed_past_the_next_hand_over_changes_nothing(
    two_regions: World,
) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0], EAST, transfer="t0")
    await move(registry, 0)
    await move(registry, 0, back=True)
    await registry._take_back(EAST, {0: 1})  # pyright: ignore[reportPrivateUsage]
    assert await owners(two_regions) == await copies(two_regions) == {0: EAST}


async def test_a_hand_over_delayed_until_its_region_owns_the_slot_again_changes_nothing(
    two_regions: World,
) -> None:
    registry, slow = registry_of(two_regions), registry_of(two_regions)
    await registry.assign([0], EAST, transfer="t0")
    with pytest.raises(Crash):
        await move(crashing_after("_take_back", two_regions), 0)
    await move(registry, 0)
    await move(registry, 0, back=True)
    await two_regions.running(0, node="e1")

    with pytest.raises(RefusedError) as no:
        await slow._hand_over([0], {0: 1}, EAST, WEST, "t1", TEST)  # pyright: ignore[reportPrivateUsage]
    assert no.value.refusal.code is RefusalCode.SLOT_NOT_OWNED
    assert await owners(two_regions) == await copies(two_regions) == {0: EAST}
    await assert_promises_hold(two_regions.databases)


async def test_slots_of_a_third_owner_are_refused_before_any_is_taken(two_regions: World) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0], EAST, transfer="t0")
    await registry.assign([1], WEST, transfer="t0")
    await registry.give_up([1], WEST, transfer="t1")
    for slots in ([0, 1], [0, 7]):
        with pytest.raises(RefusedError) as no:
            await move(registry, *slots)
        assert no.value.refusal.code is RefusalCode.SLOT_NOT_OWNED
    assert await copies(two_regions) == {0: EAST}
    await two_regions.granted(two_regions.reserve(0, node="e1"))


async def test_a_transfer_to_nowhere_is_refused_before_anything_moves(ready_world: World) -> None:
    with pytest.raises(RefusedError) as no:
        await registry_of(ready_world).transfer([0], EAST, NOWHERE, transfer="t1", actor=TEST)
    assert no.value.refusal.code is RefusalCode.UNKNOWN_REGION
    await ready_world.granted(ready_world.reserve(0))


async def test_a_transfer_is_audited_once(two_regions: World) -> None:
    await registry_of(two_regions).assign([0, 1], EAST, transfer="t0")
    await move(registry_of(two_regions), 0, 1)
    await move(registry_of(two_regions), 0, 1)
    async with two_regions.databases.at_global("durable_reader").begin() as connection:
        query = text("SELECT actor, before, after FROM audit.events WHERE action = :action")
        (event,) = (await connection.execute(query, {"action": "transfer slots"})).all()
    assert event.before == {"region": EAST}
    assert event.after == {"region": WEST, "slots": [0, 1], "transfer": "t1"}


async def test_a_hand_over_without_taking_back_is_found_by_the_invariants(
    neighbours: World,
) -> None:
    await registry_of(neighbours).assign([0], EAST, transfer="t0")
    with psycopg.connect(neighbours.databases.urls[0]) as owner:
        owner.execute("UPDATE global.slots SET region = 'us-west', number = number + 1")
    async with neighbours.databases.at_global("durable_reader").begin() as connection:
        found = [violation.invariant for violation in await violations(connection)]
    assert found == ["S1: no region owns a slot against the global side"]


# ── give up ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_slot_that_was_given_up_can_be_assigned_again(two_regions: World) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0, 1], EAST, transfer="t0")
    await registry.give_up([0], EAST, transfer="t1")
    await registry.give_up([0], EAST, transfer="t1")
    assert await owners(two_regions) == {0: None, 1: EAST}
    assert await copies(two_regions) == {1: EAST}

    await registry.assign([0], WEST, transfer="t2")
    assert await copies(two_regions) == {0: WEST, 1: EAST}
    await two_regions.at(WEST).running(0, node="w1")
    await assert_promises_hold(two_regions.databases)


async def test_a_claimed_slot_is_not_given_up(ready_world: World) -> None:
    await ready_world.running(0)
    with pytest.raises(RefusedError) as no:
        await registry_of(ready_world).give_up([0], EAST, transfer="t1")
    assert no.value.refusal.code is RefusalCode.SLOT_TAKEN
    assert (await owners(ready_world))[0] == EAST


async def test_giving_up_that_crashed_half_way_is_finished_by_the_same_call(
    two_regions: World,
) -> None:
    await registry_of(two_regions).assign([0], WEST, transfer="t0")
    with pytest.raises(Crash):
        await crashing_after("_take_back", two_regions).give_up([0], WEST, transfer="t1")
    await assert_promises_hold(two_regions.databases)
    assert await owners(two_regions) == {0: WEST}

    await registry_of(two_regions).give_up([0], WEST, transfer="t1")
    assert await owners(two_regions) == {0: None}
    assert await copies(two_regions) == {}


async def test_giving_up_that_was_delayed_past_a_new_owner_changes_nothing(
    two_regions: World,
) -> None:
    registry, slow = registry_of(two_regions), registry_of(two_regions)

    async def overtaken(*_: object) -> bool:
        """While this caller slept, others took the slot away and brought it back."""
        await move(registry, 0)
        await move(registry, 0, back=True)
        await two_regions.running(0, node="e1")
        return True

    await registry.assign([0], EAST, transfer="t0")
    setattr(slow, "_take_back", overtaken)  # noqa: B010
    await slow.give_up([0], EAST, transfer="t1")
    assert await owners(two_regions) == await copies(two_regions) == {0: EAST}
    await assert_promises_hold(two_regions.databases)


async def test_a_late_copy_after_giving_up_changes_nothing(two_regions: World) -> None:
    registry = registry_of(two_regions)
    await registry.assign([0], WEST, transfer="t0")
    await registry.give_up([0], WEST, transfer="t1")
    await registry._copy(WEST, {0: 1})  # pyright: ignore[reportPrivateUsage]
    assert await copies(two_regions) == {}
