"""Processes by pid and start time: a reused pid is another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from durable.state_dir.record import Process


def identify(pid: int) -> Process | None:
    """Name the live process that has this pid now."""
    started = _start_time_linux(pid) if sys.platform == "linux" else _start_time_posix(pid)
    return None if started is None else Process(pid=pid, started=started)


def is_alive(process: Process) -> bool:
    """Whether this very process still runs."""
    return identify(process.pid) == process


def _start_time_linux(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may contain anything, also spaces and parentheses.
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
