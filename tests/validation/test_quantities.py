"""Durations as people read them."""

from datetime import timedelta

import pytest

from durable.validation.quantities import read_duration, show_roughly


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (3_569, "59m 29s"), (60, "1m"), (59.9, "59s"), (0.5, "0s"), (-5, "0s"),
        (90_061, "1d 1h"), (86_461, "1d"), (7_200, "2h"),
    ],
)  # fmt: skip
def test_the_two_largest_units_are_shown(seconds: float, shown: str) -> None:
    assert show_roughly(timedelta(seconds=seconds)) == shown


def test_a_duration_above_a_shorter_maximum_is_refused_with_that_maximum() -> None:
    week = timedelta(days=7)
    assert read_duration("7d", week) == week
    with pytest.raises(ValueError, match=r"^got '8d'; allowed: .*such as 90s or 30m, up to 7d$"):
        read_duration("8d", week)
    with pytest.raises(ValueError, match=r"^got 691200s; allowed"):
        read_duration(timedelta(days=8), week)
