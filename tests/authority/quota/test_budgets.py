"""Capacity kept for recovery: out of reach for ordinary work, in reach of one open incident."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from durable.authority.quota.budgets import close_budget, open_budget, set_budget
from durable.model.ids import BudgetId, IncidentId, RegionId
from durable.model.placement.intents import Draw, Reserve
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from tests.authority.invariants import assert_promises_hold
from tests.authority.world import EAST, TEST, World, seconds

HEADROOM = BudgetId("headroom")
FIRE, FLOOD = IncidentId("fire"), IncidentId("flood")


def cores(count: int) -> Resources:
    return Resources.of(count * 1000)


async def keep(world: World, count: int, until: float = 600) -> None:
    await set_budget(
        world.databases, EAST, HEADROOM, cores(count), expires_at=seconds(until), actor=TEST
    )


async def open_for(world: World, incident: IncidentId | None) -> None:
    if incident is None:
        await close_budget(world.databases, EAST, HEADROOM, incident=FIRE, actor=TEST)
    else:
        await open_budget(world.databases, EAST, HEADROOM, incident=incident, actor=TEST)
        await world.with_moved(incident)


def drawing(
    world: World, slot: int, count: int, incident: IncidentId = FIRE, attempt: int = 1
) -> Reserve:
    draw = Draw(budget=HEADROOM, incident=incident)
    return world.reserve(slot, resources=cores(count), draw=draw, attempt=attempt)


async def drawn(world: World) -> int:
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        query = text("SELECT used_cpu_millis FROM regional.recovery_budgets")
        return (await connection.execute(query)).scalar_one()


# The node of the ready world has 8 cores.


async def test_ordinary_work_takes_what_is_left_and_no_more(ready_world: World) -> None:
    await keep(ready_world, 5)
    too_much = ready_world.reserve(0, resources=cores(4))
    assert await ready_world.refused(too_much) is RefusalCode.HEADROOM_RESERVED
    await ready_world.granted(ready_world.reserve(1, resources=cores(3)))
    one_more = ready_world.reserve(2, resources=cores(1))
    assert await ready_world.refused(one_more) is RefusalCode.HEADROOM_RESERVED
    await assert_promises_hold(ready_world.databases)


async def test_the_open_incident_draws_up_to_the_budget_and_gives_it_back(
    ready_world: World,
) -> None:
    await keep(ready_world, 5)
    await open_for(ready_world, FIRE)
    await ready_world.granted(ready_world.reserve(0, resources=cores(2)))
    held = await ready_world.granted(drawing(ready_world, 1, 4))
    assert await drawn(ready_world) == 4000
    assert await ready_world.refused(drawing(ready_world, 2, 2)) is RefusalCode.BUDGET_EXHAUSTED
    ordinary = ready_world.reserve(3, resources=cores(2))
    assert await ready_world.refused(ordinary) is RefusalCode.HEADROOM_RESERVED

    await ready_world.granted(ready_world.release(held.token, 1))
    assert await drawn(ready_world) == 0
    still = ready_world.reserve(3, resources=cores(2), attempt=2)
    assert await ready_world.refused(still) is RefusalCode.HEADROOM_RESERVED, "it is kept again"
    await ready_world.granted(drawing(ready_world, 1, 5, attempt=2))
    await assert_promises_hold(ready_world.databases)


async def test_a_closed_budget_and_another_incidents_are_out_of_reach(ready_world: World) -> None:
    await keep(ready_world, 5)
    assert await ready_world.refused(drawing(ready_world, 0, 1)) is RefusalCode.BUDGET_CLOSED
    await open_for(ready_world, FIRE)
    flood = drawing(ready_world, 1, 1, FLOOD)
    assert await ready_world.refused(flood) is RefusalCode.BUDGET_CLOSED
    await ready_world.granted(drawing(ready_world, 2, 1))
    await open_for(ready_world, None)
    assert await ready_world.refused(drawing(ready_world, 3, 1)) is RefusalCode.BUDGET_CLOSED
    assert await drawn(ready_world) == 1000, "what was drawn stays"


async def test_a_budget_past_its_expiry_grants_nothing_and_keeps_nothing(
    ready_world: World,
) -> None:
    await keep(ready_world, 5, until=60)
    await open_for(ready_world, FIRE)
    ready_world.now = seconds(59.999999)
    await ready_world.granted(drawing(ready_world, 0, 2))
    ordinary = ready_world.reserve(1, resources=cores(4))
    assert await ready_world.refused(ordinary) is RefusalCode.HEADROOM_RESERVED

    ready_world.now = seconds(60)
    assert await ready_world.refused(drawing(ready_world, 2, 1)) is RefusalCode.BUDGET_CLOSED
    await ready_world.granted(ready_world.reserve(1, resources=cores(4), attempt=2))
    await ready_world.granted(ready_world.reserve(3, resources=cores(2)))
    await assert_promises_hold(ready_world.databases)

    await keep(ready_world, 5, until=120)
    await ready_world.refused(ready_world.reserve(4, resources=cores(1)))


async def test_what_is_drawn_outlives_the_budgets_expiry(ready_world: World) -> None:
    await keep(ready_world, 8, until=60)
    await open_for(ready_world, FIRE)
    token = (await ready_world.granted(drawing(ready_world, 0, 8))).token
    await ready_world.granted(ready_world.bind(token))
    ready_world.now = seconds(60)
    full = ready_world.reserve(1, resources=cores(1))
    assert await ready_world.refused(full) is RefusalCode.NODE_FULL
    await ready_world.granted(ready_world.start(token))
    await assert_promises_hold(ready_world.databases)


async def test_a_budget_does_not_shrink_below_what_is_drawn(ready_world: World) -> None:
    await keep(ready_world, 5)
    await open_for(ready_world, FIRE)
    await ready_world.granted(drawing(ready_world, 0, 3))
    with pytest.raises(RefusedError, match="has 3 cpu drawn") as no:
        await keep(ready_world, 2)
    assert no.value.refusal.code is RefusalCode.CAPACITY_IN_USE
    await keep(ready_world, 3)
    assert await ready_world.refused(drawing(ready_world, 1, 1)) is RefusalCode.BUDGET_EXHAUSTED


async def test_one_incident_at_a_time_opens_a_budget(ready_world: World) -> None:
    await keep(ready_world, 5)
    await open_for(ready_world, FIRE)
    await open_for(ready_world, FIRE)
    with pytest.raises(RefusedError, match="is open for incident fire; close that") as no:
        await open_for(ready_world, FLOOD)
    assert no.value.refusal.code is RefusalCode.BUDGET_CLOSED
    await open_for(ready_world, None)
    await open_for(ready_world, FLOOD)
    await ready_world.granted(drawing(ready_world, 0, 1, FLOOD))


async def test_setting_a_budget_anew_leaves_its_incident_open(ready_world: World) -> None:
    await keep(ready_world, 5, until=60)
    await open_for(ready_world, FIRE)
    await keep(ready_world, 6, until=120)
    ready_world.now = seconds(100)
    await ready_world.granted(drawing(ready_world, 0, 6))


async def test_what_is_unknown_is_refused(ready_world: World) -> None:
    with pytest.raises(RefusedError) as no:
        await open_for(ready_world, FIRE)
    assert no.value.refusal.code is RefusalCode.UNKNOWN_BUDGET
    assert await ready_world.refused(drawing(ready_world, 0, 1)) is RefusalCode.UNKNOWN_BUDGET
    nowhere = set_budget(
        ready_world.databases, RegionId("nowhere"), HEADROOM, cores(1),
        expires_at=seconds(60), actor=TEST,
    )  # fmt: skip
    with pytest.raises(RefusedError) as no:
        await nowhere
    assert no.value.refusal.code is RefusalCode.UNKNOWN_REGION


async def test_every_change_of_a_budget_is_audited(ready_world: World) -> None:
    await keep(ready_world, 5)
    await open_for(ready_world, FIRE)
    await open_for(ready_world, None)
    async with ready_world.databases.at_region(EAST, "durable_reader").begin() as connection:
        query = text("""
            SELECT action, before, after FROM audit.events WHERE object = 'budget/headroom'
             ORDER BY sequence
        """)
        events = [tuple(row) for row in await connection.execute(query)]
    until = (ready_world.now + timedelta(seconds=600)).isoformat()
    assert events == [
        ("set recovery budget", None, {"amount": "5 cpu", "expires_at": until}),
        ("open recovery budget", {"incident": None}, {"incident": "fire"}),
        ("close recovery budget", {"incident": "fire"}, {"incident": None}),
    ]


@pytest.mark.parametrize(
    ("moved_by", "slot", "spec"),
    [
        (None, 0, "{}"),
        (FLOOD, 0, "{}"),
        (FIRE, 3, "{}"),
        (FIRE, None, '{"all_or_nothing": true}'),
    ],
)
async def test_only_a_slot_that_was_moved_draws_on_a_budget(
    ready_world: World, moved_by: IncidentId | None, slot: int | None, spec: str
) -> None:
    """And a gang as a whole, when some of it was."""
    world = ready_world
    await keep(world, 5)
    await open_for(world, FIRE)
    async with world.databases.at_region(EAST, "durable_workload").begin() as connection:
        await connection.execute(
            text("UPDATE regional.shares SET incident = :by, moved = '{1,2}', spec = :spec"),
            {"by": moved_by, "spec": spec},
        )
    if slot is None:
        await world.granted(drawing(world, 0, 1))
        return
    assert await world.refused(drawing(world, slot, 1)) is RefusalCode.SLOT_NOT_MOVED
    if moved_by == FIRE:
        await world.granted(drawing(world, 1, 1))
    assert await drawn(world) == (1000 if moved_by == FIRE else 0)
    await assert_promises_hold(world.databases)
