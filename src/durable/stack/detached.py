"""A supervisor in a session of its own: start it, and read its events until it is healthy."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from durable.stack.child import open_log
from durable.stack.shutdown import stop_stack
from durable.stack.supervisor import EventListener, StackEvent
from durable.state_dir.directory import StateDirectory
from durable.state_dir.record import StackError, disk_error, is_running, read_record

START_DEADLINE_SECONDS = 600.0
STOP_DEADLINE_SECONDS = 90.0


def start_detached(state_dir: Path, report: EventListener) -> None:
    """Return once the stack is healthy; otherwise leave nothing behind and raise why."""
    state = StateDirectory(state_dir)
    state.prepare()
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0):
        try:
            supervisor = _spawn(state, writer)
        finally:
            os.close(writer)
        try:
            _follow(reader, report, state.log)
        except BaseException:
            # Also when the person at the terminal gives up.
            _stop(supervisor, state.path)
            raise


def _spawn(state: StateDirectory, writer: int) -> subprocess.Popen[bytes]:
    try:
        with open_log(state.log) as log:
            return subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "durable.stack", str(state.path), str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(writer,),
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
    # A record that is left means that it died before it could clean up. If the lock is held, the
    # stack that runs there was never ours.
    if not is_running(path) and read_record(path) is not None:
        stop_stack(path)


def _follow(reader: int, report: EventListener, log: Path) -> None:
    for line in _lines(reader):
        event = StackEvent.model_validate_json(line)
        if event.kind == "failed":
            raise StackError(event.text)
        report(event)
        if event.kind == "running":
            return
    raise StackError(f"The supervisor ended before the stack was healthy: read {log}.")


def _lines(reader: int) -> Iterator[bytes]:
    give_up = time.monotonic() + START_DEADLINE_SECONDS
    pending = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, give_up - time.monotonic()))
        if not ready:
            raise StackError(f"The stack was not healthy in {START_DEADLINE_SECONDS:.0f} s.")
        received = os.read(reader, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        yield from lines


class EventPipe:
    """The supervisor's end: its starter gets events until the start ends, its log gets them all."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def report(self, event: StackEvent) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        took = f" ({event.seconds:.2f} s)" if event.kind == "done" else ""
        # The log may be on a full disk, which must not end the supervisor.
        with suppress(OSError):
            sys.stdout.write(f"{now} {event.kind}: {event.text}{took}\n")
            sys.stdout.flush()
        self._send(event)

    def _send(self, event: StackEvent) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, event.model_dump_json().encode() + b"\n")
            is_last = event.kind in ("running", "failed")
        except BrokenPipeError:
            # The starter has ended; the stack runs on.
            is_last = True
        if is_last:
            os.close(self._descriptor)
            self._descriptor = None
