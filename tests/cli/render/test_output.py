"""Sentences: whole in a pipe, folded on a terminal; numbers in them are grammatical and short."""

import pytest

from durable.cli.render.output import numbered, print_lines, results
from durable.validation.text import counted

LINE = "Waiting (position 1): no node in north-east-1 has room for 4 cpu"


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines([LINE], indent=2)
    assert capsys.readouterr().out == f"  {LINE}\n"


def test_a_terminal_folds_lines_below_their_beginning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_force_terminal", True)
    monkeypatch.setattr(results, "width", 40)
    print_lines([LINE], indent=2)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "  Waiting (position 1): no node in"
    assert lines[1] == "    north-east-1 has room for 4 cpu"


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
