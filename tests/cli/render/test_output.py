"""Sentences fold below their beginning on a terminal, and stay whole in a pipe."""

import pytest

from durable.cli.render.output import print_lines, results

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
