"""A child starts a dead child again, but gives up on one that dies and dies."""

import signal
import sys
from pathlib import Path

import pytest

from durable.stack.child import Child, spawn
from durable.stack.restarts import MAX_RESTARTS, RESTART_WINDOW_SECONDS, RestartingChild
from durable.state_dir.processes import is_alive, send_signal
from durable.state_dir.record import StackError

from .polling import eventually


def started(directory: Path, notes: list[str]) -> RestartingChild:
    child = Child(
        name="worker",
        argv=(sys.executable, "-c", "import time; time.sleep(600)"),
        environment={},
        directory=directory,
        ready=lambda _: True,
    )
    return RestartingChild(spawn(child), "nowhere", notes.append)


def kill(child: RestartingChild) -> None:
    process = child.part().process
    assert process is not None
    assert send_signal(process, signal.SIGKILL)
    eventually("it is dead", lambda: not is_alive(process))


def revive(child: RestartingChild, now: float) -> None:
    """Notice the death, and restart after the longest delay."""
    assert child.tick(now)
    assert child.tick(now + 10)
    child.tick(now + 10)


def test_a_dead_child_is_restarted_after_a_delay(tmp_path: Path) -> None:
    notes: list[str] = []
    child = started(tmp_path, notes)
    first = child.part().process
    kill(child)

    assert child.tick(100.0)
    assert child.part().process is None
    assert not child.tick(100.0)
    assert child.tick(101.0)
    assert not child.tick(101.0)

    assert child.part().process not in (None, first)
    assert notes[0] == "worker was killed by SIGKILL. It will be restarted."
    assert notes[1].startswith("worker is running again")
    child.stop()


def test_a_child_that_dies_too_often_is_not_restarted(tmp_path: Path) -> None:
    child = started(tmp_path, [])
    for _ in range(MAX_RESTARTS):
        kill(child)
        revive(child, 100.0)
    kill(child)

    with pytest.raises(
        StackError, match="worker died 6 times within 60 s and will not be restarted"
    ):
        child.tick(120.0)


def test_deaths_of_long_ago_are_forgiven(tmp_path: Path) -> None:
    child = started(tmp_path, [])
    for number in range(MAX_RESTARTS + 2):
        kill(child)
        revive(child, number * RESTART_WINDOW_SECONDS * 1.5)

    assert child.part().process is not None
    child.stop()
