"""A rollback tells apart what was reserved, bound and started; each race is one saved order."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.audit.events import read_events
from durable.authority.cache.region_read import read_whole
from durable.authority.fleet.policies import read_everywhere
from durable.authority.policies import regions
from durable.authority.policies.health import read_health, read_pending_percent
from durable.authority.policies.phases import reach_phase, watch_region
from durable.authority.policies.region_reads import read_in_force, read_report
from durable.authority.policies.regions import enter_region, leave_region
from durable.authority.policies.rows import read_rollout
from durable.authority.queue.decisions import record_decisions
from durable.model.placement.intents import Granted, Refused
from durable.model.placement.records import Decision
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import PolicyState
from durable.resources.reader import Reader
from durable.resources.table import POLICIES
from tests.authority.invariants import assert_promises_hold
from tests.authority.policies.world import everywhere, in_force, order, published, state
from tests.authority.waiting import until_waiting
from tests.authority.world import API, BILLING, EAST, RISK, T0, World, seconds

T = TypeVar("T")

CANARY, ACTIVE, BACK = PolicyState.CANARY, PolicyState.ACTIVE, PolicyState.ROLLED_BACK


async def decides_under(world: World) -> int | None:
    return (await read_whole(world.databases, EAST)).policy_revision


async def test_a_canary_decides_while_the_active_revision_keeps_its_place(
    ready_world: World,
) -> None:
    world = await published(ready_world)
    promoted = await order(world, "promote")
    await enter_region(world.databases, EAST, promoted, CANARY)
    assert await decides_under(world) == 2
    assert await read_in_force(world.databases, EAST) == {1: ACTIVE, 2: CANARY}
    listed = await Reader(world.databases).get(POLICIES)
    assert {row.revision: row.in_force for row in listed} == {2: {EAST: CANARY}, 1: {}}
    back = await order(world, "rollback")
    await leave_region(world.databases, EAST, back)
    assert await decides_under(world) == 1
    assert await read_in_force(world.databases, EAST) == {1: ACTIVE}


async def test_each_replica_is_told_apart_by_how_far_it_had_come(ready_world: World) -> None:
    world = await published(ready_world)
    await in_force(world)
    held, bound, started = [
        (await world.granted(world.reserve(slot, policy_revision=2))).token for slot in (0, 1, 2)
    ]
    await world.granted(world.bind(bound, 1))
    await world.granted(world.bind(started, 2))
    await world.granted(world.start(started, 2))
    left = await leave_region(world.databases, EAST, await order(world, "rollback"))
    (share,) = left.report.shares
    assert (share.decided_again, share.goes_on, share.replaced) == (1, 2, 0)
    assert str(share) == "risk/api in us-east: 1 decided again, 2 go on"
    assert await world.refused(world.bind(held, 0)) is RefusalCode.POLICY_WITHDRAWN
    await world.granted(world.start(bound, 1))
    assert (await state(world, 1), await state(world, 2)) == (ACTIVE, BACK)
    # Taken again after a crash, it answers the same and changes nothing.
    again = await leave_region(world.databases, EAST, await order(world, "rollback"))
    assert again.report == left.report
    await assert_promises_hold(world.databases)


async def test_a_long_report_counts_what_it_does_not_list(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "MAX_WORKLOADS_REPORTED", 1)
    world = await published(ready_world)
    await in_force(world)
    await world.with_tenant(BILLING)
    await world.with_slots(2, tenant=BILLING)
    await world.granted(world.reserve(0, policy_revision=2))
    for slot in (0, 1):
        await world.granted(world.reserve(slot, tenant=BILLING, policy_revision=2))
    left = await leave_region(world.databases, EAST, await order(world, "rollback"))
    assert (len(left.report.shares), left.report.count, left.report.more) == (1, 2, 1)
    assert await read_report(world.databases, EAST, 2) == left.report
    events, _ = await read_events(world.databases, chain=EAST)
    (told,) = [one.after for one in events if one.action == "roll back policy"]
    assert told is not None
    assert told["decided again"] == 3


async def test_reroll_marks_what_runs_and_may_be_asked_for_later(ready_world: World) -> None:
    world = await published(ready_world)
    await in_force(world)
    token = await world.running(0, policy_revision=2)
    await leave_region(world.databases, EAST, await order(world, "rollback"))
    left = await leave_region(world.databases, EAST, await order(world, "rollback", reroll=True))
    assert [(one.goes_on, one.replaced) for one in left.report.shares] == [(0, 1)]
    query = text("SELECT token, kind, cause, actor FROM regional.replacements")
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        assert (await connection.execute(query)).all() == [(token, "policy", "2", "alice")]


async def test_a_later_reroll_keeps_what_was_decided_again_in_the_report(
    ready_world: World,
) -> None:
    world = await published(ready_world)
    await in_force(world)
    held = (await world.granted(world.reserve(0, policy_revision=2))).token
    await world.running(1, policy_revision=2)
    await leave_region(world.databases, EAST, await order(world, "rollback"))
    assert await world.refused(world.bind(held, 0)) is RefusalCode.POLICY_WITHDRAWN
    await world.granted(world.release(held, 0))
    left = await leave_region(world.databases, EAST, await order(world, "rollback", reroll=True))
    assert [str(share) for share in left.report.shares] == [
        "risk/api in us-east: 1 decided again, 1 replaced",
    ]
    assert await read_report(world.databases, EAST, 2) == left.report


# ── races, each as one order of events that is the same every time ──────────────────────────────


@pytest.mark.parametrize("first", ["rollback", "bind"])
async def test_a_bind_and_a_rollback_that_wait_for_the_region_take_turns(
    ready_world: World, first: str
) -> None:
    """Both wait for the region's row, and get it in the order in which they began to wait."""
    world = await published(ready_world)
    await in_force(world)
    token = (await world.granted(world.reserve(policy_revision=2))).token
    back = await order(world, "rollback")
    async with await psycopg.AsyncConnection.connect(world.databases.urls[0]) as gate:
        await gate.execute("SELECT FROM regional.regions FOR NO KEY UPDATE")
        if first == "bind":
            binding = await waits(gate, 1, world.send(world.bind(token)))
            leaving = await waits(gate, 2, leave_region(world.databases, EAST, back))
        else:
            leaving = await waits(gate, 1, leave_region(world.databases, EAST, back))
            binding = await waits(gate, 2, world.send(world.bind(token)))
    (bound,), (share,) = await binding, (await leaving).report.shares
    if first == "bind":
        assert isinstance(bound, Granted)
        assert (share.decided_again, share.goes_on) == (0, 1)
        await world.granted(world.start(token))
    else:
        assert isinstance(bound, Refused)
        assert bound.refusal.code is RefusalCode.POLICY_WITHDRAWN
        assert (share.decided_again, share.goes_on) == (1, 0)
    await assert_promises_hold(world.databases)


async def waits(
    gate: psycopg.AsyncConnection, count: int, call: Coroutine[Any, Any, T]
) -> "asyncio.Task[T]":
    """The call, once so many wait for the lock."""
    task = asyncio.create_task(call)
    await until_waiting(gate, count)
    return task


async def test_a_late_promotion_changes_nothing_after_the_rollback(ready_world: World) -> None:
    """A worker that was cut off from Temporal, but not from the database, comes back."""
    world = await published(ready_world)
    promoted = await order(world, "promote")
    await leave_region(world.databases, EAST, await order(world, "rollback"))
    for late in (CANARY, ACTIVE):
        with pytest.raises(RefusedError) as no:
            await enter_region(world.databases, EAST, promoted, late)
        assert no.value.refusal.code is RefusalCode.OVERTAKEN
    assert await decides_under(world) == 1
    watched = await watch_region(world.databases, promoted, EAST, 0.0)
    reached = await reach_phase(world.databases, promoted, PolicyPhase.WIDENING)
    assert watched.phase is reached.phase is PolicyPhase.ROLLING_BACK
    assert reached.bake is None


async def test_a_late_step_of_an_older_revision_does_not_bring_it_back(ready_world: World) -> None:
    world = await published(await published(ready_world), 3)
    old = await in_force(world, revision=2)
    await reach_phase(world.databases, old, PolicyPhase.EVERYWHERE)
    new = await in_force(world, revision=3)
    await reach_phase(world.databases, new, PolicyPhase.EVERYWHERE)
    with pytest.raises(RefusedError):
        await enter_region(world.databases, EAST, old, ACTIVE)
    assert await decides_under(world) == 3
    await leave_region(world.databases, EAST, await order(world, "rollback", 3))
    assert await decides_under(world) == 2, "the one that it had superseded"


async def test_a_rollback_that_waits_for_a_region_delays_no_other(ready_world: World) -> None:
    world = ready_world
    await everywhere(world, 2)
    await published(world, 3)
    await in_force(world, revision=3)
    waits_for_east = await order(world, "rollback", 3)
    assert waits_for_east.to_revision == 2
    with pytest.raises(RefusedError, match="Revision 3 is on its way"):
        await order(await published(world, 4), "promote", 4)
    urgent = await order(world, "rollback", 2)
    assert urgent.to_revision == 1
    # East answers again, and hears of the later order first.
    await leave_region(world.databases, EAST, urgent)
    older = await read_rollout(world.databases, 3)
    assert (older.number, older.to_revision) == (waits_for_east.number, 1)
    await leave_region(world.databases, EAST, older)
    assert await read_in_force(world.databases, EAST) == {1: ACTIVE}
    assert (await state(world, 2), await state(world, 3)) == (BACK, BACK)


async def test_a_region_that_was_loaded_later_goes_back_to_the_same(ready_world: World) -> None:
    world = ready_world
    await everywhere(world, 2)
    await everywhere(world, 3)
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("DELETE FROM regional.policy_states WHERE revision <> 3")
    back = await order(world, "rollback", 3)
    assert await read_everywhere(world.databases) == 2, "for a region that is loaded now"
    await leave_region(world.databases, EAST, back)
    assert await read_in_force(world.databases, EAST) == {2: ACTIVE}


async def test_a_rollback_under_way_may_be_sent_to_another_revision(ready_world: World) -> None:
    world = ready_world
    await everywhere(world, 2)
    await everywhere(world, 3)
    first = await order(world, "rollback", 3)
    again = await order(world, "rollback", 3, to_revision=1)
    assert (first.to_revision, again.to_revision) == (2, 1)
    await leave_region(world.databases, EAST, again)
    assert await decides_under(world) == 1


async def test_a_region_shows_what_is_decided_refused_and_how_long_it_takes(
    ready_world: World,
) -> None:
    world = await published(ready_world)
    await in_force(world)
    empty = await read_health(world.databases, EAST, 2, T0)
    assert (empty.decisions, empty.reserves, empty.place_seconds) == (0, 0, None)
    assert await read_pending_percent(world.databases, EAST) == 0.0
    made = Decision(
        region=EAST,
        tenant=RISK,
        workload=API,
        generation=1,
        attempt=1,
        policy_revision=2,
        cache_version=1,
        evidence={},
        decided_at=seconds(1),
    )
    await record_decisions(world.databases, EAST, [made])
    await world.granted(world.reserve(0, policy_revision=2))
    await world.refused(world.reserve(1, policy_revision=2, node="nowhere"))
    health = await read_health(world.databases, EAST, 2, T0)
    assert (health.decisions, health.reserves, health.refused) == (1, 2, 1)
    later = await read_health(world.databases, EAST, 2, seconds(2))
    assert later.decisions == 0, "what was decided before it was watched does not count"
