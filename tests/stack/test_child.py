"""A child is started alone, is ready when it says so, and is stopped for certain."""

import signal
import sys
from pathlib import Path

import pytest

from durable.stack import child as child_module
from durable.stack.child import Child, PortTakenError, spawn
from durable.state_dir.processes import identify, is_alive, send_signal
from durable.state_dir.record import StackError

from .polling import eventually

SLEEP = "import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('up', 'w'); {SLEEP}"
LEAVE_A_GRANDCHILD = (
    "import os, subprocess, sys;"
    f"left = subprocess.Popen([sys.executable, '-c', '{SLEEP}'], close_fds=False);"
    "open('left.unfinished', 'w').write(str(left.pid));"
    "os.rename('left.unfinished', 'left')"
)


def python_child(directory: Path, code: str) -> Child:
    return Child(
        name="worker",
        argv=(sys.executable, "-c", code),
        environment={},
        directory=directory,
        ready=lambda _: True,
    )


def test_a_child_that_ends_before_it_is_ready_fails_with_its_own_words(
    tmp_path: Path,
) -> None:
    complains = python_child(tmp_path, "raise SystemExit('error: the moon is full')")
    running = spawn(complains)
    eventually("it has ended", lambda: running.exit_code() is not None)

    with pytest.raises(StackError, match="worker ended with code 1: error: the moon is full"):
        running.wait_ready()


def test_a_port_that_someone_else_holds_is_a_failure_of_its_own_kind(tmp_path: Path) -> None:
    running = spawn(python_child(tmp_path, "raise SystemExit('bind: Address already in use')"))
    eventually("it has ended", lambda: running.exit_code() is not None)

    with pytest.raises(PortTakenError):
        running.wait_ready()


def test_a_child_that_ignores_the_first_signal_gets_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "STOP_DEADLINE_SECONDS", 0.1)
    running = spawn(python_child(tmp_path, STUBBORN))
    eventually("it ignores SIGTERM", (tmp_path / "up").exists)

    running.stop()

    assert running.exit_code() == -signal.SIGKILL


def test_a_successor_waits_for_the_last_process_of_its_predecessor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "PREDECESSOR_DEADLINE_SECONDS", 0.1)
    first = spawn(python_child(tmp_path, LEAVE_A_GRANDCHILD))
    eventually("it has ended", lambda: first.exit_code() is not None)
    grandchild = identify(int((tmp_path / "left").read_text()))
    assert grandchild is not None

    with pytest.raises(StackError, match="A process of an earlier worker still uses"):
        spawn(python_child(tmp_path, SLEEP))
    assert send_signal(grandchild, signal.SIGKILL)
    eventually("it is gone", lambda: not is_alive(grandchild))

    spawn(python_child(tmp_path, SLEEP)).stop()


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    missing = Child(
        name="worker",
        argv=("/nowhere/program",),
        environment={},
        directory=tmp_path,
        ready=lambda _: True,
    )

    with pytest.raises(StackError, match="/nowhere/program cannot be run"):
        spawn(missing)
