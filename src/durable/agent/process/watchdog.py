"""The watchdog of one replica: kills it when its node's lease ends, whatever became of the agent.

It is a process of its own, in a session of its own, that the replica's shell starts before the
command. It reads the lease's deadline from the file that the agent renews, so it needs no agent:
one that was killed, or that hangs, renews nothing. It imports nothing but the standard library,
because there is one for each replica.
"""

import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from durable.agent.process.killing import kill, processes_of

# Also how late it may be after the machine was suspended: then a sleep goes on where it was.
LONGEST_SLEEP_SECONDS = 0.25
SHORTEST_SLEEP_SECONDS = 0.005
# Between two looks for processes that have closed the lock; each look costs milliseconds.
SCAN_SECONDS = 1.0
MAX_DESCRIPTORS = 2**20
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def main() -> None:
    """Ends with 0 once the watchdog is on guard in the background, with 1 if the lease is over."""
    directory, lease, order = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    deadline = read_deadline(lease)
    if deadline is None or deadline <= _now():
        record_order(directory, order)
        os._exit(1)
    if os.fork():
        os._exit(0)
    _detach()
    try:
        if not _until_over(directory, lease, deadline):
            return
        record_order(directory, order)
        while is_locked(directory) or processes_of(directory):
            kill(directory, _leader(directory))
            time.sleep(SHORTEST_SLEEP_SECONDS)
    finally:
        os._exit(0)


def _until_over(directory: Path, lease: Path, deadline: float) -> bool:
    """Whether the lease ended; False if nothing of the replica is left before that."""
    scan_at = 0.0
    while (remaining := deadline - _now()) > 0:
        time.sleep(min(LONGEST_SLEEP_SECONDS, max(SHORTEST_SLEEP_SECONDS, remaining)))
        if not is_locked(directory) and time.monotonic() >= scan_at:
            if not processes_of(directory):
                return False
            scan_at = time.monotonic() + SCAN_SECONDS
        # A file that cannot be read renews nothing.
        deadline = read_deadline(lease) or deadline
    return True


def read_deadline(lease: Path) -> float | None:
    """Until when the node may trust its lease, in seconds since this boot."""
    try:
        content = json.loads(lease.read_bytes())
        return float(content["until"]) if content["boot"] == boot_id() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def boot_id() -> str:
    """Which boot this is: with each one, the clock starts again."""
    try:
        return BOOT_ID.read_text().strip()
    except FileNotFoundError:
        return ""


def record_order(directory: Path, order: str) -> None:
    """Why it is stopped, for the next agent; an earlier order stays."""
    aside = directory / "stop.watchdog"
    # A full disk must not keep anything running.
    with suppress(OSError):
        aside.write_text(json.dumps({"at": time.time(), "order": json.loads(order)}))
        with suppress(FileExistsError):
            os.link(aside, directory / "stop")
        aside.unlink()


def is_locked(directory: Path) -> bool:
    """Whether any process of the replica holds its lock."""
    try:
        descriptor = os.open(directory / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nobody can tell, and a guard that gives up would let it run for ever
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _leader(directory: Path) -> int | None:
    try:
        return int((directory / "pid").read_text())
    except (OSError, ValueError):
        return None


def _detach() -> None:
    """Away from the replica: from its group, its lock and its logs."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nowhere, descriptor)
    os.closerange(3, MAX_DESCRIPTORS)


def _now() -> float:
    """Seconds since the boot, counting those while the machine was suspended."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
