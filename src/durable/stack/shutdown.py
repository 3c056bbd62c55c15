"""Stopping a stack: a request to its supervisor, and what a killed supervisor left behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from durable.stack.child import STOP_DEADLINE_SECONDS
from durable.state_dir.directory import StateDirectory
from durable.state_dir.processes import POLL_SECONDS, send_signal, wait_gone
from durable.state_dir.record import Part, StackError, StackRecord, is_running, read_record

SUPERVISOR_DEADLINE_SECONDS = 120.0


def stop_stack(state_dir: Path) -> tuple[str, ...]:
    """Stop the stack from outside; returns the names of what was stopped once all is gone."""
    before = read_record(state_dir)
    if before is None and not is_running(state_dir):
        return ()
    if is_running(state_dir):
        _stop_supervisor(state_dir)
    state = StateDirectory(state_dir)
    with state.locked():
        left = read_record(state_dir)
        orphans = () if left is None else stop_orphans(left)
        state.remove_record()
    # A clean stop leaves no record; otherwise only the orphans were still running.
    if left is None and before is not None:
        return (*(part.name for part in before.parts if part.process), "supervisor")
    return orphans


def stop_orphans(record: StackRecord) -> tuple[str, ...]:
    """Stop the recorded processes that outlived their supervisor; returns their names."""
    return tuple(part.name for part in reversed(record.parts) if _stop(part))


def _stop(part: Part) -> bool:
    process = part.process
    if process is None:
        return False
    for attempt, number in enumerate(part.stop_signals):
        if not send_signal(process, signal.Signals(number)):
            return attempt > 0
        if wait_gone(process, STOP_DEADLINE_SECONDS):
            return True
    raise StackError(f"{part.name} (pid {process.pid}) does not end.")


def _stop_supervisor(state_dir: Path) -> None:
    give_up = time.monotonic() + SUPERVISOR_DEADLINE_SECONDS
    is_signalled = False
    while is_running(state_dir):
        # Right after a start the record may not name this supervisor yet.
        record = read_record(state_dir)
        if not is_signalled and record is not None:
            is_signalled = send_signal(record.supervisor, signal.SIGTERM)
        if time.monotonic() > give_up:
            if record is not None:
                send_signal(record.supervisor, signal.SIGKILL)
            return
        time.sleep(POLL_SECONDS)


class StopRequest:
    """A request to stop, made by a signal: raised at once while starting, else polled.

    It is a plain flag, because a signal handler must not take a lock.
    """

    def __init__(self) -> None:
        self.made = False
        self._at_once = False

    def make(self, *_: object) -> None:
        """Make the request; usable as a signal handler."""
        self.made = True
        self._raise_if_due()

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Inside, a request raises, because a start may hang on a server that does not answer."""
        self._at_once = True
        try:
            self._raise_if_due()
            yield
        except Exception as error:
            if self.made:
                # A library may have wrapped our exception in its own; this is what happened.
                raise _interrupted() from error
            raise
        finally:
            self._at_once = False

    @contextmanager
    def deferred(self) -> Generator[None]:
        """Inside, a request waits: a new process must be recorded before anything else."""
        self._at_once = False
        yield
        self._at_once = True
        self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self.made and self._at_once:
            raise _interrupted()


def _interrupted() -> StackError:
    return StackError("The start was interrupted, and everything it had started was stopped.")
