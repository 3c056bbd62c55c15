"""`durable logs` shows what attempts left on this machine, even when nothing runs any more."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from durable.agent.process.replica_directory import ReplicaDirectory
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName

from ..terminal import Terminal


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DURABLE_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("DURABLE_DATABASE_URL", raising=False)
    return tmp_path


@pytest.fixture
def terminal(capsys: pytest.CaptureFixture[str], state: Path) -> Terminal:
    return Terminal(capsys)


def left_behind(
    state: Path, attempt: int, *, node: str = "n1", slot: int = 0, name: str = "web"
) -> ReplicaDirectory:
    """What an attempt leaves that wrote to both streams and failed."""
    token = 10 * slot + attempt
    directory = ReplicaDirectory(state / "agents" / node / f"north-{token}")
    assignment = Assignment(
        region=RegionId("north"),
        token=token,
        node=NodeId(node),
        tenant=TenantId("shop"),
        workload=WorkloadName(name),
        generation=1,
        slot=slot,
        attempt=attempt,
        bound_at=datetime(2030, 1, attempt, tzinfo=UTC),
        devices=(),
        spec=None,
    )
    assert directory.claim(assignment, None)
    directory.stdout.write_text(f"out {attempt}\n")
    directory.stderr.write_text(f"err {attempt}")
    (directory.path / "exit").write_text("3")
    os.utime(directory.path / "assignment.json", (attempt, attempt))
    return directory


def test_the_newest_attempt_is_shown_with_both_streams(state: Path, terminal: Terminal) -> None:
    for attempt, node in ((2, "n2"), (1, "n1")):
        left_behind(state, attempt, node=node)
    left_behind(state, 3, slot=1)
    left_behind(state, 4, name="other", node="n3")
    assert terminal.run("logs", "shop/web", "0") == 0
    assert terminal.stdout == "==> stdout <==\nout 2\n==> stderr <==\nerr 2"
    assert "attempt 2, on n2 in north: exited with code 3" in terminal.stderr


def test_one_stream_is_shown_as_it_was_written(state: Path, terminal: Terminal) -> None:
    left_behind(state, 1)
    assert terminal.run("logs", "shop/web", "0", "--stderr") == 0
    assert terminal.stdout == "err 1"
    assert terminal.run("logs", "shop/web", "0", "--stdout") == 0
    assert terminal.stdout == "out 1\n"


def test_an_older_attempt_is_shown_by_its_number(state: Path, terminal: Terminal) -> None:
    left_behind(state, 1)
    left_behind(state, 2)
    report = terminal.json("logs", "shop/web", "0", "--attempt", "1")
    assert (report["attempt"], report["node"], report["exit_code"]) == (1, "n1", 3)
    assert {name: log["text"] for name, log in report["logs"].items()} == {
        "stdout": "out 1\n",
        "stderr": "err 1",
    }
    assert "has logs here of attempts: 1, 2" in terminal.refused(
        "logs", "shop/web", "0", "--attempt", "9"
    )


def test_an_empty_stream_is_marked_as_empty(state: Path, terminal: Terminal) -> None:
    directory = left_behind(state, 1)
    directory.stdout.unlink()
    assert terminal.run("logs", "shop/web", "0") == 0
    assert terminal.stdout == "==> stdout <== (empty)\n==> stderr <==\nerr 1"


def test_without_files_the_authority_is_read(terminal: Terminal) -> None:
    assert "durable up" in terminal.refused("logs", "shop/web", "0")


def test_simulated_replicas_have_no_logs(seen: Terminal) -> None:
    assert "a simulated node" in seen.refused("logs", "shop/seen", "0")
    assert "not bound to any node" in seen.refused("logs", "shop/seen", "99")
    seen.wrong("logs", "shop/seen", "x")
    seen.wrong("logs", "shop/seen", "0", "--follow", "--json")
