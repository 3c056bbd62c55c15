"""The directory of one token: the only memory of a replica, and the proof that it was begun.

It appears whole, by one rename, before anything is spawned. So a token whose directory exists is
never begun again, whatever died when; one whose directory does not exist was never begun here.
"""

import errno
import fcntl
import json
import os
import shutil
import time
from pathlib import Path

from pydantic import ValidationError

from durable.agent.drivers import StopOrder
from durable.authority.fleet.assignments import Assignment


class ReplicaDirectory:
    """Files that outlive the agent; each is written aside and renamed, so none is ever half."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.stdout = path / "stdout.log"
        self.stderr = path / "stderr.log"
        self.work = path / "work"

    def claim(self, assignment: Assignment, port: int | None) -> bool:
        """Makes the directory; False when it exists, which means that the token was begun."""
        aside = self.path.with_name(f".{self.path.name}.new")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True, mode=0o700)
        (aside / "work").mkdir()
        (aside / "lock").touch()
        (aside / "assignment.json").write_text(assignment.model_dump_json())
        (aside / "port").write_text("" if port is None else str(port))
        try:
            # Onto a directory with anything in it, rename fails: two claims never both succeed.
            aside.rename(self.path)
        except OSError as error:
            shutil.rmtree(aside, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def assignment(self) -> Assignment | None:
        """None when another release wrote what this one cannot read."""
        try:
            return Assignment.model_validate_json((self.path / "assignment.json").read_bytes())
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

    def lives(self) -> bool:
        """Whether any process still holds the lock: the kernel's word, which pids cannot give."""
        try:
            descriptor = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            # Shared: two who look do not take each other for the replica.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    # ── the wish that it stops ──────────────────────────────────────────────────────────────────

    def order_stop(self, order: StopOrder) -> None:
        """Remembered before any signal is sent, so that the stop goes on after a restart."""
        aside = self.path / "stop.new"
        content = {"at": time.time(), "order": order.model_dump(mode="json")}
        aside.write_text(json.dumps(content))
        aside.rename(self.path / "stop")

    def stop_order(self) -> tuple[StopOrder | None, float]:
        """The order, if any, and how many seconds ago it was given."""
        try:
            content = json.loads((self.path / "stop").read_bytes())
            # Never less than nothing: a wall clock may have been set back since.
            age_seconds = max(0.0, time.time() - float(content["at"]))
            return StopOrder.model_validate(content["order"]), age_seconds
        except FileNotFoundError:
            return None, 0.0
        except (ValueError, KeyError):
            # A machine that lost its power may leave the file empty; the wish was there.
            return StopOrder(reason="it was asked to stop, and why was lost"), 0.0

    # ── its end ─────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Nobody asks for it again: it stays for people to look at, until it is removed."""
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
        # Without a port, or emptied by a power failure.
        return None
