"""A drill names everything that it did not leave as it found it."""

import pytest

from durable.drills.rehearsal import StackState, differences, refuse_unwell
from durable.state_dir.record import StackError

CALM: StackState = {
    ("regions", "region us-east"): "open",
    ("regions", "region us-west"): "open",
    ("shares", "risk/risk-api"): "us-east 4, us-west 4",
    ("budgets", "budget recovery of us-east"): "open for no incident, 0 drawn",
}


def test_what_is_the_same_is_no_difference() -> None:
    assert differences(CALM, dict(CALM)) == []


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (("regions", "region us-east"), "fenced", "region us-east: open before, fenced now"),
        (
            ("shares", "risk/risk-api"),
            "us-west 8",
            "risk/risk-api: us-east 4, us-west 4 before, us-west 8 now",
        ),
        (
            ("overrides", "override avoid-1"),
            "active",
            "override avoid-1: not there before, active now",
        ),
        (
            ("budgets", "budget recovery of us-east"),
            "open for us-west-2, 0 drawn",
            "budget recovery of us-east: open for no incident, 0 drawn before, "
            "open for us-west-2, 0 drawn now",
        ),
        (
            ("recoveries", "recovery recovery/us-east/2"),
            "holding",
            "recovery recovery/us-east/2: not there before, holding now",
        ),
        (
            ("operators", "operator person:a"),
            "approve on region us-east, key ab",
            "operator person:a: not there before, approve on region us-east, key ab now",
        ),
        (("nodes", "node node-1"), "upkeep", "node node-1: not there before, upkeep now"),
    ],
)
def test_every_kind_of_leftover_is_named(key: tuple[str, str], value: str, sentence: str) -> None:
    assert differences(CALM, {**CALM, key: value}) == [sentence]


def test_what_is_gone_is_named_too() -> None:
    left = {key: value for key, value in CALM.items() if key[0] != "shares"}
    assert differences(CALM, left) == ["risk/risk-api: us-east 4, us-west 4 before, not there now"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("regions", "region us-east"), "suspected"),
        (("recoveries", "recovery recovery/us-east/2"), "holding"),
    ],
)
def test_a_drill_does_not_begin_where_something_is_lost(key: tuple[str, str], value: str) -> None:
    refuse_unwell(CALM)
    with pytest.raises(StackError, match="us-east"):
        refuse_unwell({**CALM, key: value})
