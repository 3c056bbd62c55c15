"""A keeper starts a dead child again, but gives up on one that dies and dies."""

import signal
import sys
from pathlib import Path

import pytest

from durable.stack.child import Child, spawn
from durable.stack.errors import StackError
from durable.stack.keeper import RESTART_WINDOW_SECONDS, RESTARTS, Keeper
from durable.stack.process import send_signal
from durable.state_dir.processes import is_alive

from .polling import eventually


def started(directory: Path, notes: list[str]) -> Keeper:
    child = Child(
        name="worker",
        argv=(sys.executable, "-c", "import time; time.sleep(600)"),
        environment={},
        directory=directory,
        ready=lambda _: True,
    )
    return Keeper(spawn(child), "nowhere", notes.append)


def kill(keeper: Keeper) -> None:
    process = keeper.part().process
    assert process is not None
    assert send_signal(process, signal.SIGKILL)
    eventually("it is dead", lambda: not is_alive(process))


def revive(keeper: Keeper, now: float) -> None:
    """Notice the death, and start again when the longest delay is over."""
    assert keeper.tick(now)
    assert keeper.tick(now + 10)
    keeper.tick(now + 10)


def test_a_dead_child_is_started_again_after_a_delay(tmp_path: Path) -> None:
    notes: list[str] = []
    keeper = started(tmp_path, notes)
    first = keeper.part().process
    kill(keeper)

    assert keeper.tick(100.0)
    assert keeper.part().process is None
    assert not keeper.tick(100.0)
    assert keeper.tick(101.0)
    assert not keeper.tick(101.0)

    assert keeper.part().process not in (None, first)
    assert notes[0] == "worker was killed by SIGKILL. It is started again."
    assert notes[1].startswith("worker runs again")
    keeper.stop()


def test_a_child_that_dies_too_often_is_given_up(tmp_path: Path) -> None:
    keeper = started(tmp_path, [])
    for _ in range(RESTARTS):
        kill(keeper)
        revive(keeper, 100.0)
    kill(keeper)

    with pytest.raises(StackError, match="worker died 6 times within 60 s and is given up"):
        keeper.tick(120.0)


def test_deaths_of_long_ago_are_forgiven(tmp_path: Path) -> None:
    keeper = started(tmp_path, [])
    for number in range(RESTARTS + 2):
        kill(keeper)
        revive(keeper, number * RESTART_WINDOW_SECONDS * 1.5)

    assert keeper.part().process is not None
    keeper.stop()
