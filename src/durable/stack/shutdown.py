"""Stop a stack from outside: ask its supervisor, or end by record what a killed one left."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from durable.stack.child import STOP_DEADLINE_SECONDS
from durable.stack.errors import StackError
from durable.stack.process import POLL_SECONDS, send_signal, wait_gone
from durable.stack.state import StateDirectory
from durable.state_dir.record import Part, StackRecord, is_running, read_record

SUPERVISOR_DEADLINE_SECONDS = 120.0


def stop_stack(state_dir: Path) -> tuple[str, ...]:
    """Return when everything is gone, with the names of what was stopped."""
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
    """End the recorded processes that outlived their supervisor; tell which."""
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
    asked = False
    while is_running(state_dir):
        # Right after a start the record may not name this supervisor yet.
        record = read_record(state_dir)
        if not asked and record is not None:
            asked = send_signal(record.supervisor, signal.SIGTERM)
        if time.monotonic() > give_up:
            if record is not None:
                send_signal(record.supervisor, signal.SIGKILL)
            return
        time.sleep(POLL_SECONDS)
