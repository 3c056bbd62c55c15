"""A child process of the supervisor: how to start it, know that it is ready, and stop it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from durable.state_dir.processes import POLL_SECONDS, Process, identify
from durable.state_dir.record import StackError, disk_error, open_private

READY_DEADLINE_SECONDS = 120.0
STOP_DEADLINE_SECONDS = 20.0
PREDECESSOR_DEADLINE_SECONDS = 20.0
LOG_LIMIT_BYTES = 16 * 1024 * 1024
LOG_TAIL_BYTES = 64 * 1024


class PortTakenError(StackError):
    """Another process holds the port, so another port is worth a try."""


@dataclass(frozen=True)
class Child:
    """What the supervisor needs to know about a process that it keeps running."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    ready: Callable[[int], bool]
    stop_signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGKILL)
    user: str | None = None
    prepare: Callable[[], None] = lambda: None

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"


class RunningChild:
    """One start of a child."""

    def __init__(self, child: Child, popen: subprocess.Popen[bytes], log_start: int) -> None:
        self.child = child
        self._popen = popen
        self._log_start = log_start
        # Not reaped yet, so the pid is still this process even when it has died already.
        self.process = identify(popen.pid) or Process(pid=popen.pid, started="ended")

    def exit_code(self) -> int | None:
        return self._popen.poll()

    def is_ready(self) -> bool:
        return self.exit_code() is None and self.child.ready(self.process.pid)

    def wait_ready(self) -> None:
        """Wait until it answers; if it ends or takes too long, raise why."""
        give_up = time.monotonic() + READY_DEADLINE_SECONDS
        while not self.is_ready():
            if self.exit_code() is not None:
                raise self.failure()
            if time.monotonic() > give_up:
                self.stop()
                raise StackError(
                    f"{self.child.name} was not ready in {READY_DEADLINE_SECONDS:.0f} s: "
                    f"read {self.child.log}."
                )
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Send its stop signals one after the other until it has ended."""
        for number in self.child.stop_signals:
            # Popen signals only a child that it has not reaped, so never a reused pid.
            self._popen.send_signal(number)
            try:
                self._popen.wait(STOP_DEADLINE_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return
        raise StackError(f"{self.child.name} (pid {self.process.pid}) does not end.")

    def failure(self) -> StackError:
        """Why it ended (it has), in the words of its own log."""
        code = self._popen.returncode
        if code < 0:
            return StackError(f"{self.child.name} was killed by {signal.Signals(-code).name}.")
        text = self._log_since_start()
        if "address already in use" in text.lower():
            return PortTakenError(f"{self.child.name} found its port taken by another process.")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "FATAL" in line or "PANIC" in line or "rror" in line]
        last = next(reversed(errors or lines), "it logged nothing")
        return StackError(
            f"{self.child.name} ended with code {code}: {last} (its log is {self.child.log})."
        )

    def _log_since_start(self) -> str:
        with self.child.log.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, end - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace")


def spawn(child: Child) -> RunningChild:
    """Start a child in its own session, once the last process of its predecessor is gone."""
    try:
        child.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _sole_user(child) as lock, open_log(child.log) as log:
            child.prepare()
            log_start = log.tell()
            return RunningChild(child, _popen(child, lock, log), log_start)
    except OSError as error:
        raise disk_error(child.directory, error) from error


def _popen(child: Child, lock: IO[bytes], log: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603
            child.argv,
            env=dict(child.environment),
            cwd=child.directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
            user=child.user,
            group=child.user,
            extra_groups=None if child.user is None else [],
        )
    except (FileNotFoundError, PermissionError) as error:
        raise StackError(f"{child.argv[0]} cannot be run: {error.strerror}.") from error


def _sole_user(child: Child) -> IO[bytes]:
    """A lock that the child and all its descendants inherit: it is free once all have ended.

    A postmaster killed with -9 leaves backends behind for a moment, and a supervisor killed
    between a start and its record leaves a child that no record names; both hold this lock.
    """
    lock = open_private(child.directory / f"{child.name}.lock")
    give_up = time.monotonic() + PREDECESSOR_DEADLINE_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                lock.close()
                raise StackError(
                    f"A process of an earlier {child.name} still uses {child.directory}: "
                    "end it and try again."
                ) from None
            time.sleep(POLL_SECONDS)
        else:
            return lock


def open_log(path: Path) -> IO[bytes]:
    if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
        path.replace(path.with_suffix(".log.1"))
    return open_private(path)
