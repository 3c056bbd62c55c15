"""Processes by pid and start time, so that a reused pid is never mistaken for the old process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

POLL_SECONDS = 0.02


class Process(BaseModel):
    """One process of one boot of this machine: its start time tells a reused pid apart."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    started: str


def identify(pid: int) -> Process | None:
    """The live process that has this pid now; None if there is none."""
    started = _start_time_linux(pid) if sys.platform == "linux" else _start_time_posix(pid)
    return None if started is None else Process(pid=pid, started=started)


def is_alive(process: Process) -> bool:
    """Whether this very process is still running."""
    return identify(process.pid) == process


def send_signal(process: Process, number: signal.Signals) -> bool:
    """Signal this very process; False if it is gone."""
    if sys.platform != "linux":
        if not is_alive(process):
            return False
        os.kill(process.pid, number)
        return True
    try:
        # The descriptor pins the process: the pid cannot be reused between check and signal.
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
    """Wait until the process has ended; False if it is still there at the deadline."""
    give_up = time.monotonic() + deadline_seconds
    while is_alive(process):
        if time.monotonic() > give_up:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _start_time_linux(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may contain anything, even spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    state, start_ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}/{start_ticks}"


def _start_time_posix(pid: int) -> str | None:
    shown = subprocess.run(  # noqa: S603
        ["/bin/ps", "-o", "state=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        env={"LC_ALL": "C"},
        check=False,
        timeout=10,
    ).stdout.split(maxsplit=1)
    return None if len(shown) < 2 or shown[0].startswith("Z") else shown[1].strip()
