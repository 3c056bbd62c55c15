"""`durable demo` from nothing to nothing: five workloads come to serve, and all is gone."""

import json
from pathlib import Path

import pytest

from durable.cli.main import execute
from durable.state_dir.record import is_running

EXAMPLES = Path(__file__).parents[3] / "examples"
ARGUMENTS = ("-f", str(EXAMPLES / "fleet.yaml"), "-w", str(EXAMPLES / "workloads"))


@pytest.mark.soak
@pytest.mark.server
def test_the_demo_drives_five_workloads_to_serving_and_leaves_nothing_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    code = execute(["demo", "--json", *ARGUMENTS, "--state-dir", str(state)])
    message = capsys.readouterr()
    assert code == 0, message.err
    shown = json.loads(message.out)
    assert len(shown["fleet"]["regions"]) == 3
    assert {row["workload"]: row["phase"] for row in shown["workloads"]} == {
        "analytics/analytics": "serving",
        "billing/billing-api": "serving",
        "fraud/fraud-jobs": "complete",
        "risk/risk-api": "serving",
        "search/search-indexing": "serving",
    }
    [risk] = [row for row in shown["workloads"] if row["workload"] == "risk/risk-api"]
    assert all(count >= 4 for count in risk["regions"].values())
    assert shown["explanation"]["workload"] == "risk-api"
    assert [one["met"] for one in shown["avoided_zone"]] == [True] * 5
    assert all(one["met"] for one in shown["lost_region"]["expectations"])
    assert shown["lost_region"]["recovery"]["report"]["missed"] == 0
    assert shown["invariants_hold"] is True
    assert not is_running(state)


def test_a_demo_of_a_wrong_file_starts_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    assert execute(["demo", "-f", str(tmp_path / "missing.yaml"), "--state-dir", str(state)]) == 2
    assert "no such file" in capsys.readouterr().err
    missing = str(tmp_path / "missing")
    assert execute(["demo", *ARGUMENTS, "-w", missing, "--state-dir", str(state)]) == 2
    # Without this it would be the current folder.
    assert execute(["demo", *ARGUMENTS, "-w", "", "--state-dir", str(state)]) == 2
    assert "it is empty" in capsys.readouterr().err
    assert not state.exists()


def test_the_help_names_the_state_directory_that_is_taken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert execute(["demo", "--help"]) == 0
    assert "default .durable/demo)" in capsys.readouterr().out
