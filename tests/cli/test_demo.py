"""`durable demo` from nothing to nothing: a stack, a fleet, its promises, and all of it gone."""

import json
from pathlib import Path

import pytest

from durable.cli.main import execute
from durable.stack_record import is_running

FLEET = Path(__file__).parents[2] / "examples" / "fleet.yaml"


def test_the_demo_shows_the_fleet_and_leaves_nothing_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert execute(["demo", "--json", "-f", str(FLEET), "--state-dir", str(state)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["fleet"]["regions"]) == 3
    assert shown["promises_hold"] is True
    assert not is_running(state)


def test_a_demo_of_a_wrong_file_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert execute(["demo", "-f", str(tmp_path / "missing.yaml"), "--state-dir", str(state)]) == 2
    assert "no such file" in capsys.readouterr().err
    assert not state.exists()
