"""Amounts for people: exact where that is short, else with one decimal."""

import pytest

from durable.cli.render.tables import show_rounded
from durable.model.resources import Resources


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (Resources.of(145_600, 163_584), "145.6 cpu, 159.8Gi"),
        (Resources.of(2_000, 4_096, 1), "2 cpu, 4Gi, 1 gpu"),
        (Resources.of(500, 512), "500m cpu, 512Mi"),
        (Resources.of(0, 0, 2), "0 cpu, 2 gpu"),
        (Resources.of(1_000, 2 * 1024**2), "1 cpu, 2Ti"),
        (Resources.of(0), "none"),
    ],
)
def test_an_amount_is_shown_in_the_shortest_unit(amount: Resources, shown: str) -> None:
    assert show_rounded(amount) == shown
