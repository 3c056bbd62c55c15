"""Start a supervisor in a session of its own, and hear from it until the stack is healthy."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from durable.stack.child import open_log
from durable.stack.errors import StackError, disk_error
from durable.stack.events import Event, Report
from durable.stack.shutdown import stop_stack
from durable.stack.state import StateDirectory
from durable.state_dir.record import is_running, read_record

START_DEADLINE_SECONDS = 600.0
STOP_DEADLINE_SECONDS = 90.0


def start_detached(state_dir: Path, report: Report) -> None:
    """Return once the stack is healthy; otherwise nothing is left and a StackError says why."""
    state = StateDirectory(state_dir)
    state.prepare()
    hear, tell = os.pipe()
    with os.fdopen(hear, "rb", buffering=0):
        try:
            supervisor = _spawn(state, tell)
        finally:
            os.close(tell)
        try:
            _follow(hear, report, state.log)
        except BaseException:
            # Also when the person at the terminal loses patience.
            _stop(supervisor, state.path)
            raise


def _spawn(state: StateDirectory, tell: int) -> subprocess.Popen[bytes]:
    try:
        with open_log(state.log) as log:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "durable.stack", str(state.path), str(tell)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(tell,),
            )
    except OSError as error:
        raise disk_error(state.log, error) from error


def _stop(supervisor: subprocess.Popen[bytes], path: Path) -> None:
    supervisor.terminate()
    try:
        supervisor.wait(STOP_DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait(STOP_DEADLINE_SECONDS)
    # A record that it left tells that it died before it could clean up. If the lock is held it was
    # never ours, and neither is what runs there.
    if not is_running(path) and read_record(path) is not None:
        stop_stack(path)


def _follow(hear: int, report: Report, log: Path) -> None:
    for line in _lines(hear):
        event = Event.model_validate_json(line)
        if event.kind == "failed":
            raise StackError(event.text)
        report(event)
        if event.kind == "running":
            return
    raise StackError(f"The supervisor ended before the stack was healthy: read {log}.")


def _lines(hear: int) -> Iterator[bytes]:
    give_up = time.monotonic() + START_DEADLINE_SECONDS
    pending = b""
    while True:
        ready, _, _ = select.select([hear], [], [], max(0.0, give_up - time.monotonic()))
        if not ready:
            raise StackError(f"The stack was not healthy in {START_DEADLINE_SECONDS:.0f} s.")
        received = os.read(hear, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        yield from lines
