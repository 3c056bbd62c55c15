"""`durable drill` rehearses runbooks on a stack that runs, or on one of its own."""

import json
import re
from pathlib import Path

import pytest

from durable.cli.commands import drill
from durable.cli.main import execute
from durable.drills import authority_outage
from durable.drills.drill import Drill, Expectation
from durable.drills.registry import DRILLS
from durable.stack.shutdown import stop_stack
from durable.state_dir.record import is_running

ROOT = Path(__file__).parents[3]
OF_PEOPLE = ("recovery-override", "break-glass", "lost-operator-key")
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


@pytest.fixture
def short_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than leases and graces, and no longer."""
    monkeypatch.setattr(authority_outage, "OUTAGE_SECONDS", 30.0)
    monkeypatch.setattr(authority_outage, "ASKED_AFTER_SECONDS", 5.0)
    monkeypatch.setattr(authority_outage, "WATCHED_SECONDS", 20.0)


@pytest.mark.soak
@pytest.mark.server
@pytest.mark.usefixtures("short_outage")
def test_drills_share_a_stack_that_runs_and_leave_it_as_they_found_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    try:
        # The first finds none: it starts one with the examples, and leaves it to the next.
        seen = {"override-expiry": _drill("override-expiry", state, capsys, "--keep")}
        for name in (
            *OF_PEOPLE,
            "clock-jump",
            "zone-loss",
            "partition",
            "job-failover",
            "authority-outage",
            "flapping",
        ):
            assert is_running(state)
            seen[name] = _drill(name, state, capsys)
    finally:
        stop_stack(state)
    assert {some[-1] for some in seen.values()} == {"the stack is as the drill found it"}
    assert any("from ordinary work for incident" in one for one in seen["recovery-override"])
    assert "the gate is closed: the other waits for the cordon again" in seen["break-glass"]
    assert "what the lost key signs is still refused" in seen["lost-operator-key"]
    assert "its worker settles that and renews the lease" in "; ".join(seen["clock-jump"])
    assert any("leave" in one and "serve elsewhere" in one for one in seen["zone-loss"])
    assert any("lost replicas serving elsewhere" in one for one in seen["partition"])
    assert "no slot had two owners at any moment" in seen["partition"]
    assert any("job is complete" in one for one in seen["job-failover"])
    assert any("nothing is taken for lost" in one for one in seen["authority-outage"])
    assert "it is one recovery" in seen["flapping"]


@pytest.mark.parametrize("seen", [[], [Expectation(what="all is well", met=False)]])
def test_a_drill_that_fails_or_sees_nothing_ends_with_1(
    seen: list[Expectation],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def runs(_: Path) -> bool:
        return True

    def rehearsed(*_: object, stays: bool) -> list[Expectation]:
        return seen

    monkeypatch.setattr(drill, "is_running", runs)
    monkeypatch.setattr(drill, "_rehearse", rehearsed)
    arguments = ["drill", "partition", "--json", *ARGUMENTS, "--state-dir", str(tmp_path)]
    assert execute(arguments) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "failed"


@pytest.mark.parametrize("drill", DRILLS.values(), ids=lambda drill: drill.name)
def test_every_drill_is_in_the_runbook_that_it_rehearses_and_in_the_readme(drill: Drill) -> None:
    runbook = " ".join((ROOT / drill.runbook).read_text().split())
    assert f"`durable drill {drill.name}`" in runbook
    listed = re.search(r"\| rehearse \| `drill ([^`]*)`", (ROOT / "README.md").read_text())
    assert listed is not None
    assert drill.name in listed[1].split("\\|")


def test_a_drill_that_does_not_exist_starts_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert execute(["drill", "everything", "--state-dir", str(state)]) == 2
    assert not state.exists()
