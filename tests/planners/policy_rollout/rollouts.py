"""Builds revisions on their way, in which a test shows only what matters to it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from durable.model.ids import ActorId, RegionId
from durable.model.policy.rollout import Bake, PolicyPhase, PolicyRollout, RegionPolicy
from durable.model.states import PolicyState

EAST, NORTH, WEST = RegionId("east"), RegionId("north"), RegionId("west")
T0 = datetime(2030, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def bake(region: RegionId = EAST, **fields: Any) -> Bake:
    return Bake(region=region, since=T0, **fields)


def rollout(phase: PolicyPhase = PolicyPhase.CANARY, **fields: Any) -> PolicyRollout:
    given: dict[str, Any] = {
        "revision": 5,
        "number": 7,
        "canary": EAST,
        "actor": ActorId("alice"),
        "reason": "INC-42",
        "changed_at": T0,
        **fields,
    }
    return PolicyRollout(phase=phase, **given)


def regions(age_seconds: float = 0, **states: PolicyState) -> dict[RegionId, RegionPolicy]:
    return {
        RegionId(name): RegionPolicy(state=state, number=7, age_seconds=age_seconds)
        for name, state in states.items()
    }
