"""A policy is refused in words before anything is decided under it."""

from typing import Any

import pytest

from durable.scheduling.policies import PolicyError, check_policy, first_policy, read_policy
from durable.scheduling.scores import SCORES


def data(**change: Any) -> dict[str, Any]:
    return {**first_policy().model_dump(), **change}


def test_the_first_policy_weighs_every_score() -> None:
    policy = first_policy()
    assert set(policy.weights) == {score.name for score in SCORES}
    assert read_policy(policy.model_dump(mode="json")) == policy


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"weights": {"spred": 1.0, "cost": 1.0}}, "unknown score spred; known scores: spread, "),
        ({"weights": {"cost": -1.0}}, "field weights.cost: got -1.0"),
        ({"weights": {}}, "field weights"),
        ({"weights": {"cost": 0.0, "spread": 0.0}}, "field weights: every weight is 0, so that no"),
        ({"candidates_kep": 5}, "did you mean candidates_kept?"),
        ({"retry_first_seconds": 601.0}, "field retry_first_seconds: got 601.0"),
        ({"signed_verbs": ["approve", "cordon"]}, "field signed_verbs: cordon: only commands do"),
        # Classes that collide.
        ({"sampling": {"below_priority": 901, "candidates": 9}},
         "field sampling.below_priority: got 901; allowed: up to recovery.critical_priority, 900"),
        ({"urgency": {"ceiling": 900}},
         "field urgency.ceiling: got 900; allowed: below recovery.critical_priority, 900"),
        ({"recovery": {"critical_priority": 99}}, "field urgency.ceiling: got 800"),
    ],
)  # fmt: skip
def test_a_policy_that_cannot_be_used_is_refused_with_its_field(
    change: dict[str, Any], says: str
) -> None:
    with pytest.raises(PolicyError) as refused:
        read_policy(data(**change))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"sampling": {"below_priority": 900, "candidates": 9}},
        {"urgency": {"ceiling": 899}},
        {"urgency": {"ceiling": 1_000, "most": 0}},
    ],
)
def test_classes_that_only_touch_do_not_collide(change: dict[str, Any]) -> None:
    read_policy(data(**change))


def test_a_policy_made_by_hand_is_checked_too() -> None:
    with pytest.raises(PolicyError, match="unknown score charm"):
        check_policy(first_policy().model_copy(update={"weights": {"charm": 1.0}}))
