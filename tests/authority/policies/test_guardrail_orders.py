"""A guardrail's own order is taken, whatever request ids people have used before."""

import pytest
from pydantic import TypeAdapter, ValidationError
from temporalio.client import Client

from durable.activities import policy
from durable.activities.policy import PolicyActivities
from durable.authority.policies.phases import watch_region
from durable.authority.policies.regions import enter_region
from durable.authority.policies.rows import read_orders
from durable.model.policy.policy import Guardrails
from durable.model.policy.rollout import PolicyHealth, PolicyPhase
from durable.model.states import PolicyState
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
