"""What overrides do at commit, by the clock read after the lock: each kind, its end, its marks."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from durable.authority.audit.events import read_events
from durable.authority.cache.region_read import read_whole
from durable.authority.commit.regional_commit import commit_intents
from durable.authority.drains.orders import begin_drain, end_drain, mark_drained
from durable.authority.fleet.cordons import write_cordons
from durable.authority.fleet.manifest import apply_fleet
from durable.authority.fleet.regions import lock_region
from durable.authority.overrides.checks import check_incident
from durable.authority.overrides.copies import copy_override
from durable.authority.overrides.reads import drawn_on, obeyed_overrides, read_effects
from durable.authority.overrides.rows import read_overrides
from durable.authority.queue.requests import read_queue, read_waiting, write_requests
from durable.authority.quota.budgets import read_budget, set_budget
from durable.authority.reads.invariants import violations_everywhere
from durable.authority.reads.replicas import read_replicas
from durable.authority.reads.shares import read_shares
from durable.model.fleet.drain import DrainOrder, DrainState, NodesTarget
from durable.model.fleet.manifest import Fleet
from durable.model.ids import BudgetId, IncidentId, NodeId, OverrideId, RegionId, WorkloadName
from durable.model.operators.rights import OperatorMessage
from durable.model.overrides.effects import KeptBudget, OverrideScope
from durable.model.overrides.in_force import raised
from durable.model.placement.intents import AnyIntent, Granted, Refused
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.request import SchedulingRequest
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.states import OverrideState, RequestState
from durable.model.work.workload import WorkloadSpec
from durable.signals.names import drain_id
from tests.authority.overrides.asking import change, ended, give_keys, in_force, propose
from tests.authority.world import EAST, RISK, T0, TEST, WEST, World, node

ZONE = {"region": "us-east", "zone": "a"}
ONE = Resources.of(1000, 1024)


@pytest.fixture
async def world(ready_world: World) -> World:
    """Node n1 in zone a and node n2 in zone b; commits go by the database's own clock."""
    world = ready_world
    world.now = datetime.now().astimezone()
    await give_keys(world.databases)
    await world.with_nodes(node("n2", zone="b"), node("n1"))
    return world


async def send(world: World, *intents: AnyIntent) -> list[Granted | Refused]:
    engine = world.databases.at_region(world.region, "durable_commit")
    return await commit_intents(engine, world.region, intents)


async def outcome(world: World, intent: AnyIntent) -> RefusalCode | int:
    """The code of the refusal, or the token of the grant."""
    (found,) = await send(world, intent)
    return found.refusal.code if isinstance(found, Refused) else found.token


async def sound(world: World) -> bool:
    return await violations_everywhere(world.databases) == []


async def actions(world: World) -> list[str]:
    events, _ = await read_events(world.databases, chain="us-east", last=500)
    return [one.action for one in events if one.object == "override/o-1"]


async def test_nothing_is_placed_in_an_avoided_zone_until_it_ends(world: World) -> None:
    await in_force(world.databases, EAST, "avoid-zone", ZONE)
    assert await outcome(world, world.reserve(0, "n1")) is RefusalCode.AVOIDED
    assert isinstance(await outcome(world, world.reserve(0, "n2", attempt=2)), int)
    await ended(world.databases, EAST)
    assert isinstance(await outcome(world, world.reserve(1, "n1")), int)
    assert await actions(world) == ["put override in force", "end override"]
    assert await sound(world)


async def test_an_avoided_node_and_a_pin_choose_among_nodes(world: World) -> None:
    await in_force(world.databases, EAST, "avoid-node", {"region": "us-east", "node": "n2"})
    assert await outcome(world, world.reserve(0, "n2")) is RefusalCode.AVOIDED
    await ended(world.databases, EAST)
    await admit(world)
    pin = {"region": "us-east", "node": "n2", "tenant": "risk", "workload": "api"}
    await in_force(world.databases, EAST, "pin", pin, name="o-2")
    assert await outcome(world, world.reserve(0, "n1", attempt=2)) is RefusalCode.AVOIDED
    assert isinstance(await outcome(world, world.reserve(0, "n2", attempt=3)), int)


async def test_an_override_that_ends_exactly_at_bind_does_not_keep_it(world: World) -> None:
    token = (await world.granted(world.reserve(0, "n1"))).token
    until = (await in_force(world.databases, EAST, "avoid-zone", ZONE)).expires_at
    engine = world.databases.at_region(EAST, "durable_commit")

    async def bind_at(at: datetime, ordinal: int) -> Granted | Refused:
        intent = world.bind(token, ordinal=ordinal)
        (found,) = await commit_intents(engine, EAST, [intent], now=at)
        return found

    # The reservation's own lease would be over by then.
    await lengthen_lease(world)
    refused = await bind_at(until - timedelta(microseconds=1), 1)
    assert isinstance(refused, Refused)
    assert refused.refusal.code is RefusalCode.AVOIDED
    await refresh_lease(world, until)
    assert isinstance(await bind_at(until, 2), Granted), "at its moment it has no effect"


async def test_an_override_that_is_revoked_while_a_commit_waits_has_no_effect(
    world: World,
) -> None:
    await in_force(world.databases, EAST, "avoid-zone", ZONE)
    revoked = (await change(world.databases, "revoke", request_id="r-9")).target
    engine = world.databases.at_region(EAST, "durable_override")
    async with engine.begin() as connection:
        await lock_region(connection, EAST)
        ending = asyncio.create_task(copy_override(world.databases, EAST, revoked))
        await waits_for_lock(world, 1)
        waiting = asyncio.create_task(outcome(world, world.reserve(0, "n1")))
        await waits_for_lock(world, 2)
    assert (await ending).is_new
    assert isinstance(await waiting, int)


async def test_an_override_that_expires_while_a_commit_waits_has_no_effect(world: World) -> None:
    override = await in_force(world.databases, EAST, "avoid-zone", ZONE, ttl=timedelta(seconds=2))
    engine = world.databases.at_region(EAST, "durable_override")
    async with engine.begin() as connection:
        await lock_region(connection, EAST)
        waiting = asyncio.create_task(outcome(world, world.reserve(0, "n1")))
        await waits_for_lock(world, 1)
        seconds = "extract(epoch FROM CAST(:at AS timestamptz) - clock_timestamp()) + 0.01"
        left = text(f"SELECT pg_sleep({seconds})")
        await connection.execute(left, {"at": override.expires_at})
    assert isinstance(await waiting, int), "the clock is read after the lock"


async def test_a_held_workload_gets_nothing_new_and_keeps_what_runs(world: World) -> None:
    running = await world.running(0)
    held = (await world.granted(world.reserve(1, "n1"))).token
    await admit(world)
    await in_force(world.databases, EAST, "hold", {"tenant": "risk", "workload": "api"})
    assert await outcome(world, world.reserve(2, "n1")) is RefusalCode.HELD
    assert await outcome(world, world.bind(held, 1)) is RefusalCode.HELD
    assert isinstance(await outcome(world, world.evict(running, 0)), int), "and may be stopped"
    await ended(world.databases, EAST)
    assert isinstance(await outcome(world, world.bind(held, 1, ordinal=2)), int)


async def test_break_glass_passes_a_cordon_and_no_capacity(world: World) -> None:
    async with world.databases.at_region(EAST, "durable_operator").begin() as connection:
        await lock_region(connection, EAST)
        await write_cordons(connection, EAST, [NodeId("n1")], reason="fan", actor=TEST)
    assert await outcome(world, world.reserve(0, "n1")) is RefusalCode.NODE_CORDONED
    await in_force(
        world.databases, EAST, "break-glass", {"tenant": "risk"}, effect={"gates": ["cordon"]}
    )
    token = await outcome(world, world.reserve(0, "n1", attempt=2))
    assert isinstance(token, int)
    assert isinstance(await outcome(world, world.bind(token, attempt=2)), int)
    too_big = world.reserve(1, "n1", resources=Resources.of(9_000))
    assert await outcome(world, too_big) is RefusalCode.NODE_FULL
    await ended(world.databases, EAST)
    assert await outcome(world, world.start(token, attempt=2)) is RefusalCode.NODE_CORDONED
    assert await sound(world)


async def test_what_runs_where_it_may_not_is_marked_once_and_unmarked_at_the_end(
    world: World,
) -> None:
    tokens = [await world.running(0), await world.running(1)]
    await world.running(2, node="n2")
    await in_force(world.databases, EAST, "avoid-zone", ZONE, effect={"move": True})
    assert sorted(await marked(world)) == sorted(tokens)
    (effect,) = (await read_effects(world.databases, EAST)).values()
    assert (effect.marked, effect.left_to_move) == (2, 2)
    await world.granted(world.evict(tokens[0], 0))
    copied = await ended(world.databases, EAST)
    assert copied.shares == {("risk", "api", 1)}
    assert await marked(world) == [tokens[0]], "what was asked to stop ends with its mark"
    assert await sound(world)


async def test_a_copy_that_comes_late_or_twice_changes_nothing(world: World) -> None:
    first = await in_force(world.databases, EAST, "avoid-zone", ZONE)
    assert not (await copy_override(world.databases, EAST, first)).is_new
    longer = (await change(world.databases, "extend", by=timedelta(minutes=5))).target
    assert (await copy_override(world.databases, EAST, longer)).is_new
    assert not (await copy_override(world.databases, EAST, first)).is_new
    read = await read_whole(world.databases, EAST)
    assert [one.expires_at for one in read.overrides] == [longer.expires_at]
    await ended(world.databases, EAST)
    assert not (await copy_override(world.databases, EAST, longer)).is_new
    assert await obeyed_overrides(world.databases, EAST) == []
    assert (await read_whole(world.databases, EAST)).overrides == ()
    assert await actions(world) == ["put override in force", "extend override", "end override"]


async def test_what_ended_before_a_region_heard_of_it_stays_ended_there(world: World) -> None:
    first = (await propose(world.databases, "avoid-zone", ZONE)).target
    assert (await ended(world.databases, EAST)).is_new
    assert not (await copy_override(world.databases, EAST, first)).is_new, "it comes late"
    assert await obeyed_overrides(world.databases, EAST) == []
    assert isinstance(await outcome(world, world.reserve(0, "n1")), int)
    assert await actions(world) == ["end override"]
    assert await sound(world)


async def test_the_region_names_who_made_each_change(world: World) -> None:
    effect = {"gates": ["cordon"]}
    await in_force(world.databases, EAST, "break-glass", {"tenant": "risk"}, effect=effect)
    await ended(world.databases, EAST)
    events, _ = await read_events(world.databases, chain="us-east", last=500)
    told = [(one.actor, one.action) for one in events if one.object == "override/o-1"]
    assert told == [("bob", "put override in force"), ("bob", "end override")]


async def test_what_two_overrides_move_is_moved_until_both_have_ended(world: World) -> None:
    token = await world.running(0)
    move = {"move": True}
    await in_force(world.databases, EAST, "avoid-zone", ZONE, effect=move)
    one = {"region": "us-east", "node": "n1"}
    await in_force(world.databases, EAST, "avoid-node", one, effect=move, name="o-2")
    await ended(world.databases, EAST)
    assert await marked(world) == [token]
    (effect,) = (await read_effects(world.databases, EAST)).values()
    assert (effect.marked, effect.left_to_move) == (1, 1)
    await ended(world.databases, EAST, "o-2")
    assert await marked(world) == []
    assert await sound(world)


async def test_what_an_override_moves_is_still_moved_after_a_drain_was_cancelled(
    world: World,
) -> None:
    token = await world.running(0)
    target = NodesTarget.of_node(EAST, NodeId("n1"))
    message = OperatorMessage.unsigned(
        drain_id(target), "drain", actor=TEST, reason="INC-2", request_id="d-1"
    )
    order = DrainOrder(target=target, message=message)
    drain = await begin_drain(world.databases, EAST, order)
    await mark_drained(world.databases, EAST, drain)
    await in_force(world.databases, EAST, "avoid-zone", ZONE, effect={"move": True})
    state = DrainState.CANCELLED
    await end_drain(world.databases, EAST, drain, state, actor=TEST, outcome="cancelled")
    assert await marked(world) == [token]
    (effect,) = (await read_effects(world.databases, EAST)).values()
    assert (effect.marked, effect.left_to_move) == (1, 1)


async def test_a_mark_of_an_override_past_its_time_moves_nothing(world: World) -> None:
    await world.running(0)
    override = await in_force(world.databases, EAST, "avoid-zone", ZONE, effect={"move": True})

    async def to_replace() -> tuple[int, int]:
        """As a plan reads it, and as the status does."""
        read = await read_replicas(world.databases, EAST, RISK, WorkloadName("api"))
        (share,) = await read_shares(world.databases, EAST)
        return sum(one.is_marked for one in read.claims), share.report().to_replace

    assert await to_replace() == (1, 1)
    before = override.expires_at - timedelta(hours=1)
    async with world.databases.at_region(EAST, "durable_override").begin() as connection:
        await connection.execute(text("SET LOCAL ROLE NONE"))
        await connection.execute(text("ALTER TABLE regional.overrides DISABLE TRIGGER USER"))
        query = text("UPDATE regional.overrides SET expires_at = :at")
        await connection.execute(query, {"at": before})
        await connection.execute(text("ALTER TABLE regional.overrides ENABLE TRIGGER USER"))
    assert await to_replace() == (0, 0), "whether the region was told of its end or not"


async def test_an_override_keeps_its_budget_beside_one_of_the_same_name(world: World) -> None:
    at = world.now + timedelta(hours=1)
    same = BudgetId("o-1")
    await set_budget(world.databases, EAST, same, ONE, expires_at=at, actor=TEST)
    effect = {"amount": {"cpu": 1, "memory": "1Gi"}, "incident": "inc-1"}
    await in_force(world.databases, EAST, "recovery-budget", {"region": "us-east"}, effect=effect)
    kept = await read_budget(world.databases, EAST, BudgetId("override/o-1"))
    assert kept is not None
    assert kept.incident == "inc-1"


# ── emergency quota ─────────────────────────────────────────────────────────────────────────────

DRAW = {"region": "us-east", "tenant": "risk"}


async def fill_grant(world: World) -> None:
    """Leaves room for nothing in the grant."""
    async with world.databases.at_region(EAST, "durable_quota").begin() as connection:
        await connection.execute(
            text("UPDATE regional.grants SET owed_cpu_millis = granted_cpu_millis")
        )


async def test_an_emergency_quota_lets_a_tenant_reserve_beside_its_grant(world: World) -> None:
    await fill_grant(world)
    assert await outcome(world, world.reserve(0)) is RefusalCode.GRANT_EXHAUSTED
    two = {"amount": {"cpu": 2, "memory": "4Gi"}}
    await in_force(world.databases, EAST, "emergency-quota", DRAW, effect=two)
    tokens = [await outcome(world, world.reserve(slot, attempt=2)) for slot in (0, 1)]
    assert all(isinstance(token, int) for token in tokens)
    assert await outcome(world, world.reserve(2)) is RefusalCode.GRANT_EXHAUSTED, "it is used up"
    (effect,) = (await read_effects(world.databases, EAST)).values()
    assert (effect.used, effect.draw) == ((2000, 2048, 0), (2000, 4096, 0))
    assert await sound(world)


async def test_after_an_emergency_quota_nothing_new_starts_on_it_and_what_runs_goes_on(
    world: World,
) -> None:
    await fill_grant(world)
    two = {"amount": {"cpu": 2, "memory": "4Gi"}}
    await in_force(world.databases, EAST, "emergency-quota", DRAW, effect=two)
    running = await outcome(world, world.reserve(0))
    assert isinstance(running, int)
    await send(world, world.bind(running), world.start(running))
    held = await outcome(world, world.reserve(1))
    assert isinstance(held, int)
    await ended(world.databases, EAST)
    assert await outcome(world, world.bind(held, 1)) is RefusalCode.DRAW_ENDED
    assert isinstance(await outcome(world, world.release(held, 1)), int)
    await refill_grant(world)
    effects = await read_effects(world.databases, EAST)
    (effect,) = effects.values()
    assert (effect.is_obeyed, effect.used) == (False, (1000, 1024, 0)), "it is shown as over quota"
    (listed,) = await read_overrides(world.databases, also=drawn_on([effects]))
    assert listed.state is OverrideState.REVOKED
    assert await read_overrides(world.databases, also=drawn_on([effects]), ended=9) == [listed]
    # The grant has room for two in all; one runs on what is over.
    assert isinstance(await outcome(world, world.reserve(2)), int)
    assert await outcome(world, world.reserve(3)) is RefusalCode.GRANT_EXHAUSTED
    assert await sound(world)


async def refill_grant(world: World) -> None:
    """Leaves room for two in the grant."""
    async with world.databases.at_region(EAST, "durable_quota").begin() as connection:
        await connection.execute(
            text("UPDATE regional.grants SET owed_cpu_millis = granted_cpu_millis - 2000")
        )


async def test_a_recovery_budget_is_open_for_its_incident_until_it_ends(world: World) -> None:
    effect = {"amount": {"cpu": 2, "memory": "4Gi"}, "incident": "inc-1"}
    await in_force(world.databases, EAST, "recovery-budget", {"region": "us-east"}, effect=effect)
    await world.with_moved("inc-1", [0, 1])
    draw: Any = {"budget": "override/o-1", "incident": "inc-1"}
    assert isinstance(await outcome(world, world.reserve(0, draw=draw)), int)
    assert await outcome(world, world.reserve(2, draw=draw)) is RefusalCode.SLOT_NOT_MOVED
    await ended(world.databases, EAST)
    assert await outcome(world, world.reserve(1, draw=draw)) is RefusalCode.BUDGET_CLOSED
    assert await sound(world)


# ── what the tests above need ───────────────────────────────────────────────────────────────────


async def admit(world: World, name: str = "api") -> None:
    """A workload of risk, as far as an override asks whether there is one."""
    async with world.databases.at_global("durable_workload").begin() as connection:
        await connection.execute(
            text("""
                INSERT INTO global.workloads (tenant, workload, generation, spec)
                VALUES ('risk', :name, 1, '{}') ON CONFLICT DO NOTHING
            """),
            {"name": name},
        )


async def marked(world: World) -> list[int]:
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        rows = await connection.execute(text("SELECT DISTINCT token FROM regional.replacements"))
        return sorted(rows.scalars())


async def lengthen_lease(world: World) -> None:
    """Of the reservations; nobody but the owner could."""
    async with world.databases.at_region(EAST, "durable_override").begin() as connection:
        await connection.execute(text("SET LOCAL ROLE NONE"))
        await connection.execute(text("ALTER TABLE regional.reservations DISABLE TRIGGER USER"))
        await connection.execute(
            text("UPDATE regional.reservations SET expires_at = expires_at + interval '1 day'")
        )
        await connection.execute(text("ALTER TABLE regional.reservations ENABLE TRIGGER USER"))


async def refresh_lease(world: World, until: datetime) -> None:
    async with world.databases.at_region(EAST, "durable_agent").begin() as connection:
        await connection.execute(
            text("UPDATE regional.node_leases SET expires_at = CAST(:at AS timestamptz)"),
            {"at": until + timedelta(minutes=5)},
        )


async def waits_for_lock(world: World, count: int) -> None:
    """Until so many transactions wait for the region's row."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    while True:
        async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
            if (await connection.execute(waiting)).scalar_one() >= count:
                return
        await asyncio.sleep(0.01)


async def test_a_boost_changes_the_order_of_the_queue_while_it_is_in_force(world: World) -> None:
    first, second = waits("first"), waits("second")
    await write_requests(world.databases, EAST, [first, second])

    async def order() -> list[str]:
        queue = await read_queue(world.databases, EAST)
        woken = await read_waiting(world.databases, EAST)
        assert [one.workload for one in queue] == [one.workload for one in woken]
        return [str(one.workload) for one in queue]

    assert await order() == ["first", "second"]
    await admit(world, "second")
    scope = {"tenant": "risk", "workload": "second"}
    await in_force(world.databases, EAST, "priority-boost", scope, effect={"by": 10})
    assert await order() == ["second", "first"]
    await ended(world.databases, EAST)
    assert await order() == ["first", "second"]


async def test_a_boost_is_no_part_of_the_claim(world: World) -> None:
    """Its turn is earlier; who wants its place later compares with what it has by itself."""
    last = world.reserve(0, priority=200, resources=Resources.of(8_000))
    first = world.reserve(1, priority=100, raised_by=150, resources=Resources.of(8_000))
    refused, granted = await send(world, last, first)
    assert isinstance(refused, Refused)
    assert isinstance(granted, Granted)
    async with world.databases.at_region(EAST, "durable_reader").begin() as connection:
        query = text("SELECT priority FROM regional.reservations")
        assert (await connection.execute(query)).scalars().all() == [100]


async def test_a_boost_leads_no_further_than_the_highest_priority(world: World) -> None:
    top = waits("first").model_copy(update={"priority": 1_000})
    await write_requests(world.databases, EAST, [top, waits("second")])
    await admit(world, "second")
    scope = {"tenant": "risk", "workload": "second"}
    await in_force(world.databases, EAST, "priority-boost", scope, effect={"by": 1_000})
    (boost,) = (await read_whole(world.databases, EAST)).overrides
    queue = await read_queue(world.databases, EAST)
    assert [str(one.workload) for one in queue] == ["first", "second"]
    assert {one.workload: one.priority for one in await read_waiting(world.databases, EAST)} == {
        "first": raised(1_000, ()),
        "second": raised(100, [boost]),
    }


def waits(name: str) -> SchedulingRequest:
    return SchedulingRequest(
        region=EAST,
        tenant=RISK,
        workload=WorkloadName(name),
        generation=1,
        slots=(0,),
        priority=100,
        state=RequestState.PENDING,
        pending=Pending(code=PendingCode.QUEUED),
        enqueued_at=T0 if name == "first" else T0 + timedelta(seconds=1),
        deadline=T0 + timedelta(hours=1),
        spec=WorkloadSpec(replicas=1, resources=ONE),
        waiting=1,
    )


async def test_a_region_that_is_loaded_later_obeys_what_is_in_force(world: World) -> None:
    """Before it has nodes, so nothing can be placed there meanwhile."""
    await admit(world)
    everywhere = {"tenant": "risk", "workload": "api"}
    await in_force(world.databases, EAST, "hold", everywhere, name="held")
    await in_force(world.databases, EAST, "avoid-zone", {"region": "us-east", "zone": "a"})
    await propose(world.databases, "break-glass", everywhere, name="only-proposed",
                  effect={"gates": ["cordon"]})  # fmt: skip
    fleet = Fleet.model_validate({"regions": [{"id": "eu", "zones": ["eu-a"]}]})
    await apply_fleet(world.databases, fleet, actor=TEST, request="later", report=lambda _: None)
    assert await obeyed_overrides(world.databases, RegionId("eu")) == ["held"]


@pytest.mark.parametrize(
    ("incident", "allowed"),
    [
        ("us-west-2", True),  # the next loss of a region that is well
        ("us-west-3", False),
        ("us-east-2", False),  # a lost region has nothing for its own recovery
        ("inc-42", False),
    ],
)
async def test_a_budget_is_kept_only_for_a_recovery_that_may_draw_on_it(
    world: World, incident: str, allowed: bool
) -> None:
    await world.with_region(WEST)
    scope = OverrideScope(region=EAST)
    budget = KeptBudget(amount=ONE, incident=IncidentId(incident))
    if allowed:
        await check_incident(world.databases, scope, budget)
        return
    with pytest.raises(RefusedError, match="as `durable recovery show` says: us-west-2") as no:
        await check_incident(world.databases, scope, budget)
    assert no.value.refusal.code is RefusalCode.UNKNOWN_INCIDENT


async def test_what_is_kept_and_held_back_is_shown(world: World) -> None:
    effect = {"amount": {"cpu": 1, "memory": "1Gi"}, "incident": "us-west-2"}
    await in_force(world.databases, EAST, "recovery-budget", {"region": "us-east"}, effect=effect)
    shown = (await read_effects(world.databases, EAST))[OverrideId("o-1")]
    assert (shown.draw, shown.used) == ((1000, 1024, 0), (0, 0, 0))
