"""Finds every process of a replica, and ends them; nothing but the standard library is needed."""

import os
import signal
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
# In the environment of every process of the replica, so that one that closed the lock is found.
COOKIE = "DURABLE_REPLICA"


def processes_of(directory: Path) -> frozenset[int]:
    """Every process of the replica that we may see; blocks for some milliseconds."""
    try:
        lock = (directory / "lock").stat()
        names = os.listdir(PROC)
    except FileNotFoundError:
        return frozenset()
    cookie = _cookie(directory)
    pids = (int(name) for name in names if name.isdigit() and int(name) != os.getpid())
    return frozenset(pid for pid in pids if _belongs(pid, lock, cookie))


def _cookie(directory: Path) -> bytes:
    return os.fsencode(f"{COOKIE}={directory}")


def _belongs(pid: int, lock: os.stat_result, cookie: bytes) -> bool:
    # It may end while we look, or belong to another user.
    with suppress(OSError):
        if cookie in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            return True
    with suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), lock):
                    return True
    return False


def terminate(directory: Path, leader: int | None) -> None:
    """Asks the process group to end."""
    _signal_group(leader, processes_of(directory), signal.SIGTERM)


def kill(directory: Path, leader: int | None) -> frozenset[int]:
    """Kills the process group and whatever escaped from it; returns what was found alive."""
    found = processes_of(directory)
    _signal_group(leader, found, signal.SIGKILL)
    for pid in found:
        _kill_one(pid, directory)
    return found


def _signal_group(leader: int | None, found: frozenset[int], number: int) -> None:
    if leader is None:
        return
    # As long as a process of ours is in the group, the kernel does not reuse its number.
    if any(_group_of(pid) == leader for pid in found) or not PROC.exists():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _kill_one(pid: int, directory: Path) -> None:
    with suppress(ProcessLookupError, PermissionError, OSError):
        # The descriptor pins the process, so after this second check it is still the one we mean.
        descriptor = os.pidfd_open(pid)
        try:
            if _belongs(pid, (directory / "lock").stat(), _cookie(directory)):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
