"""A guardrail's own order is taken, whatever request ids people have used before."""

from datetime import datetime, timedelta

import pytest
from pydantic import TypeAdapter, ValidationError
from temporalio.client import Client

from durable.activities import policy
from durable.activities.policy import PolicyActivities
from durable.authority.db import breaker, clock
from durable.authority.db.connection import Databases
from durable.authority.policies.phases import watch_region
from durable.authority.policies.regions import enter_region
from durable.authority.policies.rows import read_orders
from durable.model.policy.policy import Guardrails
from durable.model.policy.rollout import PolicyHealth, PolicyOrderKind, PolicyPhase
from durable.model.states import PolicyState
from durable.signals.names import POLICY_CONTROLLER
from durable.signals.payloads import RequestId, controllers_request
from tests.authority.policies.world import order, published
from tests.authority.world import EAST, World

REQUEST_IDS: TypeAdapter[str] = TypeAdapter(RequestId)


def test_nobody_can_send_the_request_id_of_a_controller() -> None:
    REQUEST_IDS.validate_python("guardrail/2/5")
    with pytest.raises(ValidationError):
        REQUEST_IDS.validate_python(controllers_request("guardrail", 2, 5))


async def test_a_revision_does_not_loosen_the_guardrails_it_is_judged_by(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await published(ready_world, guardrails=Guardrails(pending_rise_percent=100))
    watched = await watch_region(world.databases, await order(world, "promote"), EAST, 0.0)
    await enter_region(world.databases, EAST, watched, PolicyState.CANARY)

    async def half_waits(*_: object) -> PolicyHealth:
        return PolicyHealth(pending_percent=50)

    monkeypatch.setattr(policy, "read_health", half_waits)
    client = await Client.connect("localhost:1", lazy=True)
    await PolicyActivities(world.databases, client).advance_policy(2)
    (last, *_) = await read_orders(world.databases, 2)
    assert "50 points more than before (allowed: 10)" in last.reason


async def test_a_person_cannot_keep_a_guardrail_from_rolling_back(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await published(ready_world)
    promoted = await order(world, "promote")
    watched = await watch_region(world.databases, promoted, EAST, 0.0)
    await enter_region(world.databases, EAST, watched, PolicyState.CANARY)
    # The pause gets the next number, which is the one that the guardrail's order will name.
    await order(world, "pause", request=f"guardrail/2/{promoted.number + 1}")

    async def everything_waits(*_: object) -> PolicyHealth:
        return PolicyHealth(pending_percent=100)

    monkeypatch.setattr(policy, "read_health", everything_waits)
    client = await Client.connect("localhost:1", lazy=True)
    activities = PolicyActivities(world.databases, client)
    progress = await activities.advance_policy(2)
    assert progress.rollout.phase is PolicyPhase.ROLLED_BACK
    (last, *_) = await read_orders(world.databases, 2)
    assert last.actor == "controller:policy"


async def test_a_watch_counts_from_when_the_revision_came_into_force(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes an hour from the note to the entry has watched nothing by then."""
    world = await published(ready_world, guardrails=Guardrails(bake_seconds=600))
    watched = await watch_region(world.databases, await order(world, "promote"), EAST, 0.0)
    await enter_region(world.databases, EAST, watched, PolicyState.CANARY)
    hours_later(monkeypatch)
    client = await Client.connect("localhost:1", lazy=True)
    progress = await PolicyActivities(world.databases, client).advance_policy(2)
    assert progress.rollout.phase is PolicyPhase.CANARY
    assert progress.look_in is not None
    assert 0 < progress.look_in.seconds <= 600


async def test_a_region_that_stays_silent_while_it_is_watched_pauses_the_promotion(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.2)
    world = await published(ready_world)
    watched = await watch_region(world.databases, await order(world, "promote"), EAST, 0.0)
    await enter_region(world.databases, EAST, watched, PolicyState.CANARY)
    client = await Client.connect("localhost:1", lazy=True)
    nowhere: dict[str, str] = {EAST: "postgresql://postgres@127.0.0.1:9/nowhere"}
    async with Databases(world.databases.url_of(EAST), nowhere) as cut_off:
        activities = PolicyActivities(cut_off, client)
        waits = await activities.advance_policy(2)
        assert not waits.rollout.is_paused
        assert "us-east to answer, which is watched; paused at" in waits.waits_for
        hours_later(monkeypatch)
        held = await activities.advance_policy(2)
    assert (held.rollout.phase, held.rollout.is_paused) == (PolicyPhase.CANARY, True)
    (last, *_) = await read_orders(world.databases, 2)
    assert (last.kind, last.actor) == (PolicyOrderKind.PAUSE, POLICY_CONTROLLER)
    assert "us-east does not answer while it is watched" in last.reason


def hours_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the global side, as the controller reads it."""

    async def read_time(databases: Databases) -> datetime:
        return await clock.read_time(databases) + timedelta(hours=3)

    monkeypatch.setattr(policy, "read_time", read_time)
