"""The directory of one token: all that is known of a replica, and the proof that it was started.

It appears as a whole, by one rename, before anything is spawned. So a token whose directory exists
is never started again, whatever died when; without a directory it was never started here.
"""

import errno
import fcntl
import json
import os
import shutil
import signal
import time
from pathlib import Path

from pydantic import ValidationError

from durable.agent.driver import StopOrder
from durable.agent.process.watchdog import is_locked
from durable.authority.fleet.assignments import Assignment
from durable.model.states import ObservedState
from durable.model.work.job import SIGNAL_CODES

# A shell adds this to the number of the signal that ended a command.
SIGNAL_BASE = 128


class ReplicaDirectory:
    """Files that outlive the agent; each is written aside and renamed, so none is ever partial."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.stdout = path / "stdout.log"
        self.stderr = path / "stderr.log"
        self.work = path / "work"

    def claim(self, assignment: Assignment, port: int | None) -> bool:
        """Creates the directory; False if it exists, which means that the token was started."""
        aside = self.path.with_name(f".{self.path.name}.new")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True, mode=0o700)
        (aside / "work").mkdir()
        (aside / "lock").touch()
        (aside / "assignment.json").write_text(assignment.model_dump_json())
        (aside / "port").write_text("" if port is None else str(port))
        try:
            # A rename onto a directory that is not empty fails, so two claims never both succeed.
            aside.rename(self.path)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def assignment(self) -> Assignment | None:
        """None if another release wrote what this one cannot read."""
        try:
            return Assignment.read_json((self.path / "assignment.json").read_bytes())
        except (OSError, ValidationError):
            return None

    @property
    def port(self) -> int | None:
        return _number(self.path / "port")

    @property
    def leader(self) -> int | None:
        """The process that leads the replica's session and group."""
        return _number(self.path / "pid")

    @property
    def exit_code(self) -> int | None:
        return _number(self.path / "exit")

    # ── the lock ────────────────────────────────────────────────────────────────────────────────

    def take_lock(self) -> int:
        """A locked descriptor for the replica's processes to inherit."""
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def is_alive(self) -> bool:
        """Whether any process still holds the lock; a pid alone could not prove it."""
        # Looked at with a shared lock, so that two readers do not take each other for the replica.
        return is_locked(self.path)

    # ── the order to stop ───────────────────────────────────────────────────────────────────────

    def order_stop(self, order: StopOrder) -> None:
        """Recorded before any signal is sent, so that the stop goes on after a restart."""
        aside = self.path / "stop.new"
        content = {"at": time.time(), "order": order.model_dump(mode="json")}
        aside.write_text(json.dumps(content))
        aside.rename(self.path / "stop")

    def stop_order(self) -> tuple[StopOrder | None, float]:
        """The order, if any, and how many seconds ago it was given."""
        try:
            content = json.loads((self.path / "stop").read_bytes())
            # Never negative: the wall clock may have been set back since.
            age_seconds = max(0.0, time.time() - float(content["at"]))
            return StopOrder.read(content["order"]), age_seconds
        except FileNotFoundError:
            return None, 0.0
        except (ValueError, KeyError):
            # A power failure may leave the file empty, but the order was given.
            return StopOrder(reason="its stop was requested, but the reason was lost"), 0.0

    # ── its end ─────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Marks it as no longer needed; people may read it until it is removed."""
        (self.path / "closed").touch()

    @property
    def is_closed(self) -> bool:
        return (self.path / "closed").exists()

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        # There is none, or a power failure emptied the file.
        return None


def end_of(directory: ReplicaDirectory, order: StopOrder | None) -> tuple[ObservedState, str]:
    """STOPPED if it exited with 0 or was stopped on request, else FAILED; with the evidence.

    It is read from what the replica left behind, so it is the same after any number of restarts.
    """
    code = directory.exit_code
    if order is not None:
        # Work that finished before it was stopped has finished.
        state = ObservedState.STOPPED if code == 0 else order.ends_as
        return state, f"{order.reason}: {_describe(code)}"
    if code == 0:
        return ObservedState.STOPPED, _describe(code)
    if code is None:
        evidence = "it ended without an exit code: it was killed, or was never started"
        return ObservedState.FAILED, evidence
    return ObservedState.FAILED, _describe(code)


def known_exit_code(directory: ReplicaDirectory) -> int | None:
    """The code that its command chose to end with; None if a signal ended it."""
    code = directory.exit_code
    return None if code is None or code in SIGNAL_CODES else code


def _describe(code: int | None) -> str:
    if code is None:
        return "killed"
    if code > SIGNAL_BASE:
        try:
            return f"exit code {code} ({signal.Signals(code - SIGNAL_BASE).name})"
        except ValueError:
            pass
    return f"exit code {code}"
