"""Signals to processes and waits for their ends, so that a reused pid is never signalled."""

from __future__ import annotations

import os
import signal
import sys
import time

from durable.state_dir.processes import is_alive
from durable.state_dir.record import Process

POLL_SECONDS = 0.02


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Signal this very process; False when it is gone."""
    if sys.platform != "linux":
        if not is_alive(process):
            return False
        os.kill(process.pid, number)
        return True
    try:
        # The descriptor pins the process: the pid cannot change hands after the check.
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_gone(process: Process, deadline_seconds: float) -> bool:
    """Wait until the process has ended; False when it outlived the deadline."""
    give_up = time.monotonic() + deadline_seconds
    while is_alive(process):
        if time.monotonic() > give_up:
            return False
        time.sleep(POLL_SECONDS)
    return True
