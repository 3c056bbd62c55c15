"""`durable drill` rehearses runbooks on a stack that runs, or on one of its own."""

import json
from pathlib import Path

import pytest

from durable.cli.drills.registry import DRILLS
from durable.cli.main import execute
from durable.stack.shutdown import stop_stack
from durable.state_dir.record import is_running

ROOT = Path(__file__).parents[3]
ARGUMENTS = ("-f", str(ROOT / "examples/fleet.yaml"), "-w", str(ROOT / "examples/workloads"))


def _drill(name: str, state: Path, capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    """What was expected, all of which has to be met."""
    arguments = ["drill", name, "--json", *ARGUMENTS, "--state-dir", str(state), *more]
    code = execute(arguments)
    message = capsys.readouterr()
    assert code == 0, message.err
    seen = json.loads(message.out)["expectations"]
    assert all(one["met"] for one in seen)
    return [one["what"] for one in seen]


def test_drills_share_a_stack_that_runs_and_leave_it_as_they_found_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    try:
        # The first finds none: it starts one with the examples, and leaves it to the next.
        avoided = _drill("override-expiry", state, capsys, "--keep")
        assert is_running(state)
        lost = _drill("regional-failover", state, capsys)
        assert is_running(state)
    finally:
        stop_stack(state)
    assert len(avoided) == 6
    assert avoided[-1] == lost[-1] == "the stack is as the drill found it"
    assert any("lost replicas serving elsewhere" in one for one in lost)


def test_every_drill_names_a_runbook_that_exists() -> None:
    for drill in DRILLS.values():
        assert (ROOT / drill.runbook).exists()


def test_a_drill_that_does_not_exist_starts_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert execute(["drill", "everything", "--state-dir", str(state)]) == 2
    assert not state.exists()
