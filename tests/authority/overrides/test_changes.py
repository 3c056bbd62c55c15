"""Overrides on the global side: who may do what, once per request, and each step in the audit."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from durable.authority.audit.events import read_events
from durable.authority.fleet.policies import publish_policy
from durable.authority.overrides import changes
from durable.authority.overrides.changes import expire_override
from durable.authority.overrides.freeze import check_not_frozen
from durable.authority.overrides.rows import read_override, read_overrides
from durable.authority.reads.invariants import violations_everywhere
from durable.model.ids import OverrideId, RegionId
from durable.model.policy.rollout import PolicyPhase
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState
from durable.scheduling.policies import first_policy
from tests.authority.overrides.asking import change, give_keys, propose
from tests.authority.world import EAST, TEST, World

ZONE = {"region": "us-east", "zone": "a"}
GLASS = {"tenant": "risk"}
EAST_RISK = {"region": "us-east", "tenant": "risk"}
CORDON = {"gates": ["cordon"]}
O1 = OverrideId("o-1")


@pytest.fixture
async def world(ready_world: World) -> World:
    await give_keys(ready_world.databases)
    return ready_world


async def actions(world: World, target: str = "override/o-1") -> list[tuple[str, str]]:
    events, _ = await read_events(world.databases, last=500)
    return [(one.actor, one.action) for one in events if one.object == target]


async def refused(code: RefusalCode, call: object) -> str:
    with pytest.raises(RefusedError) as caught:
        await call  # type: ignore[misc]
    assert caught.value.refusal.code is code
    return str(caught.value)


async def pass_time(world: World, interval: str) -> None:
    """Moves the moments of every override into the past; nobody but the owner could."""
    async with world.databases.at_global("durable_override").begin() as connection:
        await connection.execute(text("SET LOCAL ROLE NONE"))
        await connection.execute(text("ALTER TABLE global.overrides DISABLE TRIGGER USER"))
        await connection.execute(
            text(f"""
                UPDATE global.overrides
                   SET proposed_at = proposed_at - interval '{interval}',
                       activated_at = activated_at - interval '{interval}',
                       expires_at = expires_at - interval '{interval}',
                       latest_expiry = latest_expiry - interval '{interval}'
            """)
        )
        await connection.execute(text("ALTER TABLE global.overrides ENABLE TRIGGER USER"))


async def test_what_needs_nobody_is_in_force_at_once(world: World) -> None:
    answered = await propose(world.databases, "avoid-zone", ZONE)
    override = answered.target
    assert override.state is OverrideState.ACTIVE
    assert override.activated_at is not None
    assert override.expires_at - override.activated_at == timedelta(minutes=30)
    assert "In force: avoid-zone on region us-east, zone a until" in answered.sentence
    assert await actions(world) == [("ann", "propose override"), ("ann", "activate override")]
    assert await violations_everywhere(world.databases) == []


async def test_what_needs_a_second_person_waits_for_one(world: World) -> None:
    proposed = await propose(world.databases, "break-glass", GLASS, effect=CORDON)
    assert proposed.target.state is OverrideState.PROPOSED
    own = change(world.databases, "approve", who="ann")
    assert "another person has to approve" in await refused(RefusalCode.SELF_APPROVAL, own)
    approved = (await change(world.databases, "approve")).target
    assert (approved.state, approved.approver) == (OverrideState.ACTIVE, "bob")
    assert await actions(world) == [("ann", "propose override"), ("bob", "activate override")]


async def test_the_same_request_again_is_answered_as_it_was(world: World) -> None:
    first = await propose(world.databases, "avoid-zone", ZONE)
    assert await propose(world.databases, "avoid-zone", ZONE) == first
    longer = await change(world.databases, "extend", by=timedelta(minutes=10))
    again = await change(world.databases, "extend", by=timedelta(minutes=10))
    assert again.sentence == longer.sentence
    assert again.target.expires_at == longer.target.expires_at
    reused = change(world.databases, "revoke", request_id="r-2")
    assert "was used for the extend" in await refused(RefusalCode.KEY_CONFLICT, reused)
    taken = propose(world.databases, "avoid-zone", ZONE, request_id="r-7")
    assert "choose another name" in await refused(RefusalCode.KEY_CONFLICT, taken)
    assert len(await actions(world)) == 3


async def test_a_request_id_is_its_senders_alone(world: World) -> None:
    await propose(world.databases, "break-glass", GLASS, effect=CORDON)
    await change(world.databases, "approve")
    for call in (
        change(world.databases, "approve", who="mallory"),
        propose(world.databases, "break-glass", GLASS, effect=CORDON, who="mallory"),
    ):
        assert "was used by" in await refused(RefusalCode.KEY_CONFLICT, call)


async def test_what_was_extended_as_often_as_allowed_can_still_be_revoked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_CHANGES", 2)
    await propose(world.databases, "avoid-zone", ZONE)
    minute = timedelta(minutes=1)
    await change(world.databases, "extend", by=minute)
    often = change(world.databases, "extend", by=minute, request_id="r-3")
    assert "not extended any more" in await refused(RefusalCode.WRONG_STATE, often)
    revoked = await change(world.databases, "revoke", request_id="r-4")
    assert revoked.target.state is OverrideState.REVOKED


async def test_the_audit_has_who_changed_it_and_why(world: World) -> None:
    await propose(world.databases, "avoid-zone", ZONE)
    longer = await change(world.databases, "extend", by=timedelta(minutes=1))
    assert longer.target.changed_by == "bob"
    events, _ = await read_events(world.databases, last=500)
    (event,) = (one for one in events if one.action == "extend override")
    assert event.after is not None
    assert (event.actor, event.after["reason"], event.after["request"]) == ("bob", "INC-1", "r-2")


async def test_a_service_approves_nothing(world: World) -> None:
    await propose(world.databases, "break-glass", GLASS, effect=CORDON)
    async with world.databases.at_global("durable_operators").begin() as connection:
        await connection.execute(text("UPDATE global.operators SET kind = 'service'"))
    assert "is a service" in await refused(
        RefusalCode.NOT_ALLOWED, change(world.databases, "approve")
    )


async def test_what_was_rejected_or_revoked_stays_so(world: World) -> None:
    await propose(world.databases, "break-glass", GLASS, effect=CORDON)
    rejected = (await change(world.databases, "reject")).target
    assert (rejected.state, rejected.activated_at) == (OverrideState.REJECTED, None)
    late = change(world.databases, "approve", request_id="r-3")
    assert "rejected by bob: INC-1" in await refused(RefusalCode.OVERRIDE_ENDED, late)
    await propose(world.databases, "avoid-zone", ZONE, name="o-2")
    await change(world.databases, "revoke", name="o-2")
    again = change(world.databases, "revoke", name="o-2", request_id="r-3")
    await refused(RefusalCode.OVERRIDE_ENDED, again)
    assert await read_overrides(world.databases) == []
    ended = await read_overrides(world.databases, ended=10)
    assert {one.id: one.state for one in ended} == {"o-1": "rejected", "o-2": "revoked"}


async def test_an_extension_stops_at_the_maximum_of_its_kind(world: World) -> None:
    await propose(world.databases, "priority-boost", {"tenant": "risk"}, effect={"by": 10})
    too_long = change(world.databases, "extend", by=timedelta(days=1))
    assert "lasts at most 1d" in await refused(RefusalCode.TTL_TOO_LONG, too_long)


async def test_its_time_is_over_by_the_databases_clock_alone(world: World) -> None:
    await propose(world.databases, "avoid-zone", ZONE)
    early = await expire_override(world.databases, O1)
    assert early.state is OverrideState.ACTIVE
    await pass_time(world, "1 hour")
    for call in (
        change(world.databases, "extend", by=timedelta(hours=1)),
        change(world.databases, "revoke", request_id="r-3"),
    ):
        await refused(RefusalCode.OVERRIDE_ENDED, call)
    expired = await expire_override(world.databases, O1)
    assert (expired.state, expired.outcome) == (OverrideState.EXPIRED, "its time was over")
    assert await expire_override(world.databases, O1) == expired, "once"
    assert (await actions(world))[-1] == ("controller:override", "end override")


async def test_a_proposal_that_nobody_approves_lapses(world: World) -> None:
    await propose(world.databases, "break-glass", GLASS, effect=CORDON)
    await pass_time(world, "1 day")
    await refused(RefusalCode.OVERRIDE_ENDED, change(world.databases, "approve"))
    expired = await expire_override(world.databases, O1)
    assert expired.outcome == "it was not approved in time"


@pytest.mark.parametrize(
    ("kind", "scope", "effect", "code"),
    [
        ("hold", {"tenant": "nobody", "workload": "x"}, {}, RefusalCode.UNKNOWN_TENANT),
        ("hold", {"tenant": "risk", "workload": "nothing"}, {}, RefusalCode.UNKNOWN_WORKLOAD),
    ],
)
async def test_what_does_not_exist_cannot_be_meant(
    world: World, kind: str, scope: dict[str, str], effect: dict[str, str], code: RefusalCode
) -> None:
    await refused(code, propose(world.databases, kind, scope, effect=effect))
    assert await read_override(world.databases, O1) is None


async def test_who_has_no_right_or_no_signature_changes_nothing(world: World) -> None:
    nobody = propose(world.databases, "avoid-zone", ZONE, who="mallory")
    await refused(RefusalCode.UNKNOWN_OPERATOR, nobody)
    unsigned = propose(world.databases, "break-glass", GLASS, effect=CORDON, who="test")
    await refused(RefusalCode.SIGNATURE_MISSING, unsigned)
    assert await read_override(world.databases, O1) is None
    await propose(world.databases, "avoid-zone", ZONE)
    await refused(RefusalCode.UNKNOWN_OPERATOR, change(world.databases, "revoke", who="mallory"))
    found = await read_override(world.databases, O1)
    assert found is not None
    assert found.number == 1


@pytest.mark.parametrize(
    ("kind", "scope", "effect"),
    [
        ("emergency-quota", EAST_RISK, {"amount": {"cpu": 1}}),
        ("recovery-budget", {"region": "us-east"}, {"amount": {"cpu": 1}, "incident": "inc-1"}),
    ],
)
async def test_whoever_claims_another_name_does_not_become_two_people(
    world: World, kind: str, scope: dict[str, str], effect: dict[str, Any]
) -> None:
    # Who signs nothing may be anybody, and could approve it as themselves.
    claimed = propose(world.databases, kind, scope, effect=effect, who="test")
    assert "so for what needs approval" in await refused(RefusalCode.SIGNATURE_MISSING, claimed)
    assert await read_override(world.databases, O1) is None
    await propose(world.databases, kind, scope, effect=effect)
    active = (await change(world.databases, "approve")).target
    longer = timedelta(minutes=5)
    alone = change(world.databases, "extend", who="test", by=longer, request_id="r-3")
    await refused(RefusalCode.SIGNATURE_MISSING, alone)
    assert await read_override(world.databases, O1) == active
    await change(world.databases, "extend", who="ann", by=longer, request_id="r-4")


async def test_where_nobody_signs_approvals_nobody_signs_proposals(world: World) -> None:
    spec: dict[str, Any] = {**first_policy().model_dump(mode="json"), "signed_verbs": []}
    await publish_policy(world.databases, 2, spec, TEST, phase=PolicyPhase.EVERYWHERE)
    amount = {"amount": {"cpu": 1}}
    await propose(world.databases, "emergency-quota", EAST_RISK, effect=amount, who="test")


async def test_a_kind_of_a_newer_release_freezes_nothing_and_breaks_nothing(world: World) -> None:
    await propose(world.databases, "avoid-zone", ZONE)
    async with world.databases.at_global("durable_override").begin() as connection:
        await connection.execute(text("SET LOCAL ROLE NONE"))
        await connection.execute(text("ALTER TABLE global.overrides DISABLE TRIGGER USER"))
        await connection.execute(text("UPDATE global.overrides SET kind = 'of-tomorrow'"))
        await connection.execute(text("ALTER TABLE global.overrides ENABLE TRIGGER USER"))
    await check_not_frozen(world.databases, EAST)


async def test_a_freeze_is_seen_by_whoever_would_promote_a_policy(world: World) -> None:
    east, west = EAST, RegionId("us-west")
    await check_not_frozen(world.databases, east)
    await propose(world.databases, "policy-freeze", {"region": "us-east"})
    await refused(RefusalCode.POLICY_FROZEN, check_not_frozen(world.databases, east))
    await check_not_frozen(world.databases, west)
    await pass_time(world, "2 days")
    await check_not_frozen(world.databases, east)
