"""What people read in an explanation is words, not keys."""

import pytest

from durable.cli.explained_text import step_words
from durable.cli.words import counted


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("reserve", "Reserve"),
        ("bind.2", "Bind"),
        ("release-stopped", "Release (stopped)"),
        ("release-node_lost.3", "Release (node lost)"),
    ],
)
def test_a_step_is_told_in_words(step: str, words: str) -> None:
    assert step_words(step) == words


def test_one_of_something_is_not_several() -> None:
    assert [counted(count, "slot") for count in (0, 1, 2, 1000)] == [
        "0 slots",
        "1 slot",
        "2 slots",
        "1,000 slots",
    ]
