"""Numbers in sentences are grammatical and short."""

import pytest

from durable.cli.render.output import numbered
from durable.validation.text import counted


def test_one_of_something_is_not_several() -> None:
    assert [counted(count, "slot") for count in (0, 1, 2, 1000)] == [
        "0 slots",
        "1 slot",
        "2 slots",
        "1,000 slots",
    ]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3], "Slot 3"),
        ([3, 4], "Slots 3 and 4"),
        ([0, 1, 2], "Slots 0 to 2"),
        ([0, 1, 2, 5, 7, 8, 9], "Slots 0 to 2, 5 and 7 to 9"),
    ],
)
def test_slots_in_a_row_are_named_by_the_first_and_the_last(numbers: list[int], words: str) -> None:
    assert numbered("Slot", numbers) == words
