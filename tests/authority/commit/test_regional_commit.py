"""The regional commit grants what is there, refuses the rest with a reason, and does so once."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.commit import reserve_rules
from durable.authority.commit.ledger import NodeEntry
from durable.authority.commit.regional_commit import commit_intents
from durable.authority.fleet.cordons import cordon_nodes
from durable.authority.fleet.node_sessions import register_nodes, renew_leases
from durable.authority.fleet.observations import Observation, observe
from durable.authority.fleet.policies import set_policy_state
from durable.authority.recovery.fence import fence, reopen
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import ActorId, BudgetId, IncidentId, NodeId, RegionId, TenantId, ZoneId
from durable.model.placement.intents import (
    AnyIntent,
    Draw,
    Granted,
    Refused,
    ReleaseCause,
    Requirements,
    Reserve,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Capacity, Resources
from durable.model.states import ObservedState, PolicyState
from tests.authority.waiting import until_waiting
from tests.authority.world import BILLING, EAST, TEST, WEST, World, labels, node, seconds


@pytest.fixture
def world(ready_world: World) -> World:
    return ready_world


async def test_a_slot_goes_from_reserved_to_starting(world: World) -> None:
    reserved = await world.granted(world.reserve())
    assert (reserved.token, reserved.node) == (1, "n1")
    assert reserved.expires_at == world.now + timedelta(seconds=30)

    bound = await world.granted(world.bind(reserved.token))
    started = await world.granted(world.start(reserved.token))
    assert reserved.version < bound.version < started.version


async def test_tokens_and_versions_grow_with_every_commit(world: World) -> None:
    outcomes = [await world.granted(world.reserve(slot)) for slot in range(3)]
    assert [outcome.token for outcome in outcomes] == [1, 2, 3]
    versions = [outcome.version for outcome in outcomes]
    assert versions == sorted(set(versions))


async def test_a_refusal_does_not_fail_its_neighbours(world: World) -> None:
    outcomes = await world.send(
        world.reserve(0), world.reserve(1, node="nowhere"), world.reserve(2), world.bind(99, 3)
    )
    assert [type(outcome) for outcome in outcomes] == [Granted, Refused, Granted, Refused]


async def test_inside_a_batch_the_higher_priority_goes_first(world: World) -> None:
    whole = Resources.of(8000, 1024)
    low, high = await world.send(
        world.reserve(0, resources=whole, priority=10),
        world.reserve(1, resources=whole, priority=900),
    )
    assert isinstance(low, Refused)
    assert low.refusal.code is RefusalCode.NODE_FULL
    assert isinstance(high, Granted)


async def test_what_a_batch_frees_the_same_batch_may_take(world: World) -> None:
    whole = Resources.of(8000, 1024)
    held = await world.granted(world.reserve(0, resources=whole))
    taken, released = await world.send(
        world.reserve(1, resources=whole), world.release(held.token, 0)
    )
    assert isinstance(taken, Granted)
    assert isinstance(released, Granted)


# ── idempotency ─────────────────────────────────────────────────────────────────────────────────


async def test_an_intent_sent_again_returns_its_first_outcome(world: World) -> None:
    first = await world.granted(world.reserve())
    again = world.reserve(actor=ActorId("another-worker"), evidence="a retry after a timeout")
    assert await world.granted(again) == first
    assert await world.granted(world.bind(first.token)) == await world.granted(
        world.bind(first.token)
    )


async def test_a_refusal_is_recorded_too(world: World) -> None:
    too_much = world.reserve(resources=Resources.of(9000))
    first = await world.send(too_much)
    bigger = node(capacity=Capacity(cpu_millis=64_000, memory_mib=65_536))
    await world.with_nodes(bigger)
    assert await world.send(too_much) == first
    await world.granted(world.reserve(resources=Resources.of(9000), attempt=2))


@pytest.mark.parametrize(
    "code",
    [
        RefusalCode.LEASE_ACTIVE,
        RefusalCode.REGION_LEASE_LAPSED,
        RefusalCode.NODE_STALE,
        RefusalCode.STILL_RUNNING,
        RefusalCode.REGION_FENCED,
    ],
)
async def test_what_is_refused_for_now_is_granted_later_under_the_same_key(
    world: World, code: RefusalCode
) -> None:
    """Whoever asked a thousand times has used up no key, and waits for none of them."""
    token = (await world.granted(world.reserve())).token
    if code is RefusalCode.LEASE_ACTIVE:
        assert await world.refused(world.expire(token)) is code
        world.now = seconds(30)
        await world.granted(world.expire(token))
        return
    await world.granted(world.bind(token))
    match code:
        case RefusalCode.REGION_LEASE_LAPSED:
            await lease_region(world, world.now)
            assert await world.refused(world.start(token)) is code
            await lease_region(world, seconds(60))
        case RefusalCode.NODE_STALE:
            world.now = seconds(600)
            assert await world.refused(world.start(token)) is code
            await world.with_nodes()
        case RefusalCode.STILL_RUNNING:
            await world.granted(world.start(token))
            lost = world.release(token, cause=ReleaseCause.NODE_LOST)
            assert await world.refused(lost) is code
            world.now = seconds(600)
            await world.granted(lost)
            return
        case _:
            await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
            world.epoch = 2
            assert await world.refused(world.start(token)) is code
            await reopen(world.databases, EAST, expected_epoch=2, actor=TEST, reason="test")
            await world.with_nodes()
    await world.granted(world.start(token))


async def lease_region(world: World, until: datetime) -> None:
    """As if the global side had renewed the region's lease until then, and not since."""
    statement = text("UPDATE regional.regions SET lease_expires_at = :until, lease_seconds = 60")
    async with world.databases.at_region(EAST, "durable_region").begin() as connection:
        await connection.execute(statement, {"until": until})


async def test_the_same_key_with_another_payload_is_a_conflict(world: World) -> None:
    await world.granted(world.reserve())
    other = world.reserve(resources=Resources.of(2000))
    assert await world.refused(other) is RefusalCode.KEY_CONFLICT
    kept = await world.granted(world.reserve())
    assert kept.token == 1


async def test_a_key_twice_in_one_batch_counts_once(world: World) -> None:
    first, same, other = await world.send(
        world.reserve(), world.reserve(), world.reserve(resources=Resources.of(2000))
    )
    assert first == same
    assert isinstance(other, Refused)
    assert other.refusal.code is RefusalCode.KEY_CONFLICT


# ── fencing ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_fenced_worker_cannot_commit(world: World) -> None:
    token = await world.running()
    stale = [
        world.reserve(1),
        world.bind(token),
        world.start(token),
        world.evict(token),
        world.release(token, cause=ReleaseCause.REGION_FENCED, ordinal=2),
        world.expire(token),
    ]
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
    for intent in stale[3:] + stale[:1]:
        assert await world.refused(intent) is RefusalCode.FENCED_WRITER


async def test_a_fenced_refusal_is_not_remembered(world: World) -> None:
    token = await world.running()
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
    release = world.release(token, cause=ReleaseCause.REGION_FENCED)
    assert await world.refused(release) is RefusalCode.FENCED_WRITER
    world.epoch, world.now = 2, seconds(600)
    await world.granted(world.release(token, cause=ReleaseCause.REGION_FENCED))


async def test_a_fence_frees_nothing_before_the_leases_of_its_nodes_have_lapsed(
    world: World,
) -> None:
    token = await world.running()
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
    world.epoch, world.now = 2, seconds(599)
    release = world.release(token, cause=ReleaseCause.REGION_FENCED)
    assert await world.refused(release) is RefusalCode.STILL_RUNNING
    world.now = seconds(600)
    await world.granted(release)


async def test_a_fenced_region_takes_no_new_work(world: World) -> None:
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
    world.epoch = 2
    assert await world.refused(world.reserve()) is RefusalCode.REGION_FENCED


# ── reserve re-checks what matters ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"node": NodeId("ghost")}, RefusalCode.UNKNOWN_NODE),
        ({"tenant": TenantId("ghost")}, RefusalCode.SLOT_NOT_OWNED),
        ({"slot": 99}, RefusalCode.SLOT_NOT_OWNED),
        ({"policy_revision": 7}, RefusalCode.UNKNOWN_POLICY),
        ({"resources": Resources.of(8001)}, RefusalCode.NODE_FULL),
        ({"resources": Resources.of(1, 32_769)}, RefusalCode.NODE_FULL),
        ({"resources": Resources.of(1, 1, 1)}, RefusalCode.NODE_FULL),
        ({"requirements": Requirements(regions=(WEST,))}, RefusalCode.RESIDENCY),
        ({"requirements": Requirements(zones=(ZoneId("b"),))}, RefusalCode.RESIDENCY),
        ({"requirements": Requirements(dedicated=True)}, RefusalCode.TENANCY),
        ({"requirements": Requirements(labels=labels(disk="nvme"))}, RefusalCode.REQUIRED_LABELS),
        (
            {"draw": Draw(budget=BudgetId("none"), incident=IncidentId("i1"))},
            RefusalCode.UNKNOWN_BUDGET,
        ),
    ],
)
async def test_a_reserve_that_does_not_fit_is_refused(
    world: World, change: dict[str, Any], code: RefusalCode
) -> None:
    slot = change.pop("slot", 0)
    assert await world.refused(world.reserve(slot, **change)) is code


async def test_a_tenant_without_a_grant_is_refused(world: World) -> None:
    await world.with_tenant(BILLING, region=EAST)
    await world.with_slots(2, BILLING)
    await world.granted(world.reserve(0, tenant=BILLING))
    stranger = TenantId("stranger")
    await world.with_region(WEST)
    await world.with_tenant(stranger, region=WEST)
    await world.with_slots(2, stranger)
    assert await world.refused(world.reserve(1, tenant=stranger)) is RefusalCode.UNKNOWN_TENANT


async def test_required_labels_and_own_nodes_are_accepted(world: World) -> None:
    mine = node("mine", dedicated_to=TenantId("risk"), labels=labels(disk="nvme"))
    await world.with_nodes(mine)
    wants = Requirements(dedicated=True, labels=labels(disk="nvme"), regions=(EAST,))
    await world.granted(world.reserve(node="mine", requirements=wants))


async def test_a_node_kept_for_another_tenant_is_refused(world: World) -> None:
    await world.with_nodes(node(dedicated_to=BILLING))
    assert await world.refused(world.reserve()) is RefusalCode.TENANCY


async def test_a_cordoned_node_takes_no_new_work(world: World) -> None:
    await cordon_nodes(
        world.databases, NodesTarget.of_node(EAST, NodeId("n1")), actor=TEST, reason="disk errors"
    )
    assert await world.refused(world.reserve()) is RefusalCode.NODE_CORDONED


async def test_a_node_whose_lease_expired_takes_no_new_work(world: World) -> None:
    world.now = seconds(600)
    assert await world.refused(world.reserve()) is RefusalCode.NODE_STALE


async def test_a_node_that_was_cordoned_since_the_reserve_binds_and_starts_nothing(
    world: World,
) -> None:
    held, bound = [(await world.granted(world.reserve(slot))).token for slot in (0, 1)]
    await world.granted(world.bind(bound, 1))
    await cordon_nodes(
        world.databases, NodesTarget.of_node(EAST, NodeId("n1")), actor=TEST, reason="disk errors"
    )
    assert await world.refused(world.bind(held, 0)) is RefusalCode.NODE_CORDONED
    assert await world.refused(world.start(bound, 1)) is RefusalCode.NODE_CORDONED
    await world.granted(world.release(held, 0))
    await world.granted(world.release(bound, 1))


async def test_a_node_that_fell_silent_since_the_reserve_binds_and_starts_nothing(
    world: World,
) -> None:
    world.now = seconds(590)
    held, bound = [(await world.granted(world.reserve(slot))).token for slot in (0, 1)]
    await world.granted(world.bind(bound, 1))
    world.now = seconds(600)
    assert await world.refused(world.bind(held, 0)) is RefusalCode.NODE_STALE
    assert await world.refused(world.start(bound, 1)) is RefusalCode.NODE_STALE
    await world.granted(world.release(bound, 1))


async def test_a_node_that_is_not_back_since_a_fence_binds_nothing(world: World) -> None:
    token = (await world.granted(world.reserve())).token
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
    await reopen(world.databases, EAST, expected_epoch=2, actor=TEST, reason="test")
    world.epoch = 2
    assert await world.refused(world.bind(token)) is RefusalCode.NODE_STALE


async def test_a_taken_slot_is_refused_until_it_is_released(world: World) -> None:
    held = await world.granted(world.reserve())
    assert await world.refused(world.reserve(attempt=2)) is RefusalCode.SLOT_TAKEN
    await world.granted(world.release(held.token))
    await world.granted(world.reserve(attempt=3))


async def test_a_grant_is_spent_and_comes_back(world: World) -> None:
    await world.with_tenant(BILLING, grant=Resources.of(2000, 4096))
    await world.with_slots(3, BILLING)
    first = await world.granted(world.reserve(0, tenant=BILLING))
    await world.granted(world.reserve(1, tenant=BILLING))
    assert await world.refused(world.reserve(2, tenant=BILLING)) is RefusalCode.GRANT_EXHAUSTED
    await world.granted(world.release(first.token, 0, tenant=BILLING))
    await world.granted(world.reserve(2, tenant=BILLING, attempt=2))


async def test_devices_are_handed_out_one_by_one(world: World) -> None:
    await world.with_nodes(node(gpus=2))
    one_gpu = Resources.of(1000, 1024, 1)
    first = await world.granted(world.reserve(0, resources=one_gpu))
    second = await world.granted(world.reserve(1, resources=one_gpu))
    assert {*first.devices, *second.devices} == {"gpu-0", "gpu-1"}
    assert await world.refused(world.reserve(2, resources=one_gpu)) is RefusalCode.NODE_FULL
    await world.granted(world.release(first.token, 0))
    third = await world.granted(world.reserve(2, resources=one_gpu, attempt=2))
    assert third.devices == first.devices


async def test_ordinary_work_leaves_the_recovery_headroom_alone(world: World) -> None:
    await world.with_headroom(Resources.of(7500, 1024))
    assert await world.refused(world.reserve()) is RefusalCode.HEADROOM_RESERVED
    await world.granted(world.reserve(resources=Resources.of(500, 512), attempt=2))
    world.now = seconds(600)  # the budget is past its expiry, and so is the node's lease
    await world.with_nodes()
    await world.granted(world.reserve(1))


# ── the steps on a token ────────────────────────────────────────────────────────────────────────


async def test_a_token_of_another_slot_is_unknown(world: World) -> None:
    token = (await world.granted(world.reserve(0))).token
    intents: list[AnyIntent] = [
        world.bind(token, 1),
        world.bind(token, 0, generation=2),
        world.bind(token, 0, attempt=2),
        world.bind(token + 1, 0),
    ]
    for intent in intents:
        assert await world.refused(intent) is RefusalCode.UNKNOWN_TOKEN


async def test_an_expired_reservation_cannot_be_bound(world: World) -> None:
    token = (await world.granted(world.reserve())).token
    world.now = seconds(30)
    assert await world.refused(world.bind(token)) is RefusalCode.LEASE_EXPIRED


async def test_a_reservation_expires_late_never_early(world: World) -> None:
    token = (await world.granted(world.reserve())).token
    world.now = seconds(29)
    assert await world.refused(world.expire(token)) is RefusalCode.LEASE_ACTIVE
    world.now = seconds(30)
    await world.granted(world.expire(token, ordinal=2))
    assert await world.refused(world.bind(token)) is RefusalCode.WRONG_STATE


async def test_a_binding_does_not_expire(world: World) -> None:
    token = (await world.granted(world.reserve())).token
    await world.granted(world.bind(token))
    world.now = seconds(599)
    assert await world.refused(world.expire(token)) is RefusalCode.WRONG_STATE
    await world.granted(world.start(token))


async def test_steps_are_taken_once_and_in_order(world: World) -> None:
    token = (await world.granted(world.reserve())).token
    assert await world.refused(world.start(token)) is RefusalCode.WRONG_STATE
    assert await world.refused(world.evict(token)) is RefusalCode.WRONG_STATE
    await world.granted(world.bind(token))
    assert await world.refused(world.bind(token, ordinal=2)) is RefusalCode.WRONG_STATE
    await world.granted(world.start(token, ordinal=2))
    assert await world.refused(world.start(token, ordinal=3)) is RefusalCode.WRONG_STATE


async def test_a_rolled_back_policy_binds_nothing_but_lets_starts_continue(world: World) -> None:
    early, late = [(await world.granted(world.reserve(slot))).token for slot in (0, 1)]
    await world.granted(world.bind(early, 0))
    await set_policy_state(world.databases, EAST, 1, PolicyState.ROLLED_BACK, TEST)
    assert await world.refused(world.bind(late, 1)) is RefusalCode.POLICY_WITHDRAWN
    assert await world.refused(world.reserve(2)) is RefusalCode.POLICY_WITHDRAWN
    await world.granted(world.start(early, 0))


async def test_a_superseded_policy_still_binds_what_it_reserved(world: World) -> None:
    token = (await world.granted(world.reserve())).token
    await set_policy_state(world.databases, EAST, 1, PolicyState.SUPERSEDED, TEST)
    await world.granted(world.bind(token))


async def test_an_evicted_binding_is_never_started(world: World) -> None:
    token = (await world.granted(world.reserve())).token
    await world.granted(world.bind(token))
    await world.granted(world.evict(token))
    await world.granted(world.evict(token, ordinal=2))
    assert await world.refused(world.start(token)) is RefusalCode.STOP_REQUESTED


@pytest.mark.parametrize("cause", list(ReleaseCause))
async def test_started_work_is_not_released_without_evidence(
    world: World, cause: ReleaseCause
) -> None:
    token = await world.running()
    assert await world.refused(world.release(token, cause=cause)) is RefusalCode.STILL_RUNNING


@pytest.mark.parametrize("end", [ObservedState.STOPPED, ObservedState.FAILED])
async def test_a_reported_end_makes_the_release_safe(world: World, end: ObservedState) -> None:
    token = await world.running()
    report = Observation(
        token=token,
        node=NodeId("n1"),
        session=world.sessions["n1"],
        sequence=1,
        state=end,
        evidence="exit code 0",
    )
    assert await observe(world.databases, EAST, [report], observer=TEST) == [None]
    await world.granted(world.release(token, cause=ReleaseCause.STOPPED))
    again = world.release(token, cause=ReleaseCause.STOPPED, ordinal=2)
    assert await world.refused(again) is RefusalCode.WRONG_STATE


async def test_a_lost_node_makes_the_release_safe(world: World) -> None:
    token = await world.running()
    world.now = seconds(600)
    await world.granted(world.release(token, cause=ReleaseCause.NODE_LOST))


async def test_an_unknown_region_is_a_refusal(world: World) -> None:
    world.region = RegionId("atlantis")
    assert await world.refused(world.reserve()) is RefusalCode.UNKNOWN_REGION


async def test_every_refusal_says_what_to_do_next(world: World) -> None:
    bad: list[Reserve] = [
        world.reserve(node="ghost"),
        world.reserve(1, resources=Resources.of(9000)),
        world.reserve(99),
    ]
    for outcome in await world.send(*bad):
        assert isinstance(outcome, Refused)
        assert ";" in outcome.refusal.sentence, "a reason; and what to do next"
        assert outcome.refusal.sentence.endswith(".")


async def test_the_clock_is_read_after_the_wait_for_the_lock(world: World) -> None:
    """Without an explicit time, a reservation's lease begins when the database says so."""
    await register_nodes(world.databases, EAST, [node()], epoch=1, lease_ttl_seconds=3600, now=None)
    engine = world.databases.at_region(EAST, "durable_commit")
    (outcome,) = await commit_intents(engine, EAST, [world.reserve()])
    assert isinstance(outcome, Granted)
    assert outcome.expires_at is not None
    assert outcome.expires_at.year < 2030, "the database's clock, not the test's"


async def test_a_constraint_that_the_rules_missed_refuses_the_culprit_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.with_nodes(node("n2"))

    def blind(*_: object) -> None:
        return None

    monkeypatch.setattr(reserve_rules, "_capacity_refuses", blind)
    fits, does_not, fits_too = await world.send(
        world.reserve(0), world.reserve(1, resources=Resources.of(9000)), world.reserve(2)
    )
    assert isinstance(fits, Granted)
    assert isinstance(fits_too, Granted)
    assert isinstance(does_not, Refused)
    assert does_not.refusal.code is RefusalCode.BROKEN_CONSTRAINT


async def test_a_batch_that_is_taken_apart_keeps_its_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.with_nodes(node("n2"), node("n3"))

    def blind(intent: Reserve, on: NodeEntry) -> Refused | None:
        return None if intent.slot == 0 else sighted(intent, on)

    sighted = reserve_rules._capacity_refuses  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(reserve_rules, "_capacity_refuses", blind)
    whole = Resources.of(8000, 1024)
    culprit, low, high = await world.send(
        world.reserve(0, node="n2", resources=Resources.of(9000), priority=500),
        world.reserve(1, resources=whole, priority=1),
        world.reserve(2, resources=whole, priority=900),
    )
    assert isinstance(culprit, Refused)
    assert culprit.refusal.code is RefusalCode.BROKEN_CONSTRAINT
    assert isinstance(low, Refused)
    assert isinstance(high, Granted)
    again = world.reserve(0, node="n2", resources=Resources.of(9000), priority=500)
    assert await world.refused(again) is RefusalCode.BROKEN_CONSTRAINT


# ── what is given back is really free ───────────────────────────────────────────────────────────


async def test_a_lapsed_lease_is_not_renewed_so_a_lost_node_registers_again(world: World) -> None:
    token = await world.running()
    world.now = seconds(600)
    await world.granted(world.release(token, cause=ReleaseCause.NODE_LOST))
    sessions = {NodeId("n1"): world.sessions["n1"]}
    late = await renew_leases(
        world.databases, EAST, sessions, lease_ttl_seconds=600, now=seconds(601)
    )
    assert late == frozenset()
    world.now = seconds(602)
    assert await world.refused(world.reserve(attempt=2)) is RefusalCode.NODE_STALE


async def test_a_renewal_on_its_way_is_waited_for_before_a_node_counts_as_lost(
    world: World,
) -> None:
    token = await world.running()
    world.now = seconds(600)
    async with await psycopg.AsyncConnection.connect(world.databases.urls[0]) as agent:
        await agent.execute(
            "UPDATE regional.node_leases SET expires_at = expires_at + interval '1 hour'"
        )
        release = asyncio.create_task(
            world.refused(world.release(token, cause=ReleaseCause.NODE_LOST))
        )
        await until_waiting(agent)
        await agent.commit()
    assert await release is RefusalCode.STILL_RUNNING


async def test_a_fenced_region_binds_and_starts_nothing(world: World) -> None:
    held, bound = [(await world.granted(world.reserve(slot))).token for slot in (0, 1)]
    await world.granted(world.bind(bound, 1))
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
    world.epoch = 2
    await world.with_nodes()
    assert await world.refused(world.bind(held, 0)) is RefusalCode.REGION_FENCED
    assert await world.refused(world.start(bound, 1)) is RefusalCode.REGION_FENCED
    await world.granted(world.release(held, 0))
    await world.granted(world.release(bound, 1))


async def test_a_node_that_came_back_answers_for_what_it_runs(world: World) -> None:
    token = await world.running()
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="test")
    world.epoch = 2
    await world.with_nodes()
    release = world.release(token, cause=ReleaseCause.REGION_FENCED)
    assert await world.refused(release) is RefusalCode.STILL_RUNNING


async def test_controllers_that_release_for_their_own_reasons_do_not_share_a_key(
    world: World,
) -> None:
    token = await world.running()
    assert await world.refused(world.release(token)) is RefusalCode.STILL_RUNNING
    world.now = seconds(600)
    await world.granted(world.release(token, cause=ReleaseCause.NODE_LOST))


async def test_a_node_does_not_change_under_work_that_could_not_be_placed_on_it(
    world: World,
) -> None:
    await world.with_nodes(node(labels=labels(disk="nvme")))
    wants = Requirements(labels=labels(disk="nvme"), zones=(ZoneId("a"),))
    await world.granted(world.reserve(requirements=wants))
    changes: list[dict[str, Any]] = [
        {"labels": {}},
        {"labels": labels(disk="nvme"), "zone": ZoneId("b")},
        {"labels": labels(disk="nvme"), "dedicated_to": BILLING},
    ]
    for change in changes:
        with pytest.raises(RefusedError) as no:
            await world.with_nodes(node("n1", **change))
        assert no.value.refusal.code is RefusalCode.CAPACITY_IN_USE
    await world.with_nodes(node(labels=labels(disk="nvme", rack="r1")))
