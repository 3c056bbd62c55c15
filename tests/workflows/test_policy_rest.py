"""How long a policy rests: a paused one must not fill a run with looks that find nothing."""

from typing import Any

import pytest

from durable.model.policy.rollout import PolicyPhase, PolicyProgress
from durable.model.time_left import TimeLeft
from durable.workflows import timeouts
from durable.workflows.policy.rest import rest_of
from tests.planners.policy_rollout.rollouts import bake, rollout

# A timer that is started and fires, the workflow task of three events, the step's marker.
EVENTS_PER_LOOK = 6


def seconds(look_in: float | None = None, ordered_for: float = 0, **fields: Any) -> float:
    left = None if look_in is None else TimeLeft(seconds=look_in)
    progress = PolicyProgress(
        rollout=rollout(**fields), look_in=left, ordered_for_seconds=ordered_for
    )
    return rest_of(progress).total_seconds()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"phase": PolicyPhase.SHADOW}, 600),
        ({"bake": bake()}, 5),
        ({"bake": bake(), "look_in": 2}, 2),
        ({"bake": bake(), "look_in": -2}, 0.1),
        ({"bake": bake(), "look_in": 60}, 5),
        ({"phase": PolicyPhase.ROLLING_BACK}, 5),
        ({"is_paused": True}, 600),
        ({"is_paused": True, "bake": bake()}, 5),
        ({"is_paused": True, "bake": bake(), "ordered_for": 60}, 30),
        ({"is_paused": True, "bake": bake(), "ordered_for": 9_999}, 120),
    ],
)
def test_it_rests_long_only_while_a_person_has_to_move_it(
    given: dict[str, Any], expected: float
) -> None:
    assert seconds(**given) == expected


def test_the_page_of_a_paused_policy_can_be_answered_for_an_hour() -> None:
    passed = 0.0
    for _ in range(timeouts.EVENTS_PER_RUN // EVENTS_PER_LOOK):
        passed += seconds(ordered_for=passed, is_paused=True, bake=bake())
    assert passed > 3600
