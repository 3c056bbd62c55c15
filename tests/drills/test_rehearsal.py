"""A drill names everything that it did not leave as it found it."""

import pytest

from durable.drills.rehearsal import StackState, differences, refuse_unwell
from durable.state_dir.record import StackError

CALM = StackState(
    regions={"region us-east": "open", "region us-west": "open"},
    shares={"risk/risk-api": "us-east 4, us-west 4"},
    budgets={"budget recovery of us-east": "open for nobody, 0 drawn"},
)


def test_what_is_the_same_is_no_difference() -> None:
    assert differences(CALM, CALM.model_copy()) == []


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        (
            {"regions": {"region us-east": "fenced", "region us-west": "open"}},
            "region us-east: open before, fenced now",
        ),
        (
            {"shares": {"risk/risk-api": "us-west 8"}},
            "risk/risk-api: us-east 4, us-west 4 before, us-west 8 now",
        ),
        ({"shares": {}}, "risk/risk-api: us-east 4, us-west 4 before, not there now"),
        (
            {"overrides": {"override avoid-1": "active"}},
            "override avoid-1: not there before, active now",
        ),
        (
            {"budgets": {"budget recovery of us-east": "open for us-west-2, 0 drawn"}},
            "budget recovery of us-east: open for nobody, 0 drawn before, "
            "open for us-west-2, 0 drawn now",
        ),
        (
            {"recoveries": {"recovery/us-east/2": "holding"}},
            "recovery/us-east/2: not there before, holding now",
        ),
        (
            {"keys": {"the key of person:a": "ab"}},
            "the key of person:a: not there before, ab now",
        ),
        (
            {"operators": {"operator person:a": "approve on region us-east"}},
            "operator person:a: not there before, approve on region us-east now",
        ),
        (
            {"cordons": {"the cordon of node-1": "upkeep"}},
            "the cordon of node-1: not there before, upkeep now",
        ),
    ],
)
def test_every_kind_of_leftover_is_named(changed: dict[str, dict[str, str]], sentence: str) -> None:
    assert differences(CALM, CALM.model_copy(update=changed)) == [sentence]


@pytest.mark.parametrize(
    "unwell",
    [
        {"regions": {"region us-east": "suspected"}},
        {"recoveries": {"recovery/us-east/2": "holding"}},
    ],
)
def test_a_drill_does_not_begin_where_something_is_lost(unwell: dict[str, dict[str, str]]) -> None:
    refuse_unwell(CALM)
    with pytest.raises(StackError, match="us-east"):
        refuse_unwell(CALM.model_copy(update=unwell))
