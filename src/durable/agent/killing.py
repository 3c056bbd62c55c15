"""Signals to a replica and to nobody else: its group, and what escaped from the group.

A number alone proves nothing, since the kernel uses pids again. What belongs to a replica either
holds its lock open or carries its name in its environment, and both are read from /proc.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

from durable.agent.launcher import COOKIE
from durable.agent.replica_directory import ReplicaDirectory

PROC = Path("/proc")


def processes_of(directory: ReplicaDirectory) -> frozenset[int]:
    """Every process of the replica that may be seen; blocks for some milliseconds."""
    try:
        lock = directory.lock.stat()
        names = os.listdir(PROC)
    except FileNotFoundError:
        return frozenset()
    mark = os.fsencode(f"{COOKIE}={directory.path}")
    pids = (int(name) for name in names if name.isdigit() and int(name) != os.getpid())
    return frozenset(pid for pid in pids if _belongs(pid, lock, mark))


def _belongs(pid: int, lock: os.stat_result, mark: bytes) -> bool:
    # It may end, or belong to somebody else, while we look.
    with suppress(OSError):
        if mark in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            return True
    with suppress(OSError):
        for descriptor in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), lock):
                    return True
    return False


def terminate(directory: ReplicaDirectory, leader: int | None) -> None:
    """Asks the group to end."""
    _signal_group(leader, processes_of(directory), signal.SIGTERM)


def kill(directory: ReplicaDirectory, leader: int | None) -> frozenset[int]:
    """Ends the group and whatever escaped from it; answers what was found alive."""
    found = processes_of(directory)
    _signal_group(leader, found, signal.SIGKILL)
    for pid in found:
        _kill_one(pid, directory)
    return found


def _signal_group(leader: int | None, found: frozenset[int], number: int) -> None:
    if leader is None:
        return
    # While one of its own is in the group, the kernel gives its number to nobody else.
    if any(_group_of(pid) == leader for pid in found) or not PROC.exists():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, number)


def _group_of(pid: int) -> int | None:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


def _kill_one(pid: int, directory: ReplicaDirectory) -> None:
    with suppress(ProcessLookupError, PermissionError, OSError):
        # The descriptor is of one process for good: asked again, it is still the one we mean.
        descriptor = os.pidfd_open(pid)
        try:
            mark = os.fsencode(f"{COOKIE}={directory.path}")
            if _belongs(pid, directory.lock.stat(), mark):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
