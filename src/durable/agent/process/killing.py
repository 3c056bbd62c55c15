"""Signals a replica and nothing else: its process group, and what escaped from the group.

A pid alone proves nothing, because the kernel reuses pids. What belongs to a replica either holds
its lock open or carries its cookie in the environment, and both are read from /proc.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

from durable.agent.process.launcher import COOKIE
from durable.agent.process.replica_directory import ReplicaDirectory

PROC = Path("/proc")


def processes_of(directory: ReplicaDirectory) -> frozenset[int]:
    """Every process of the replica that we may see; blocks for some milliseconds."""
    try:
        lock = directory.lock.stat()
        names = os.listdir(PROC)
    except FileNotFoundError:
        return frozenset()
    cookie = os.fsencode(f"{COOKIE}={directory.path}")
    pids = (int(name) for name in names if name.isdigit() and int(name) != os.getpid())
    return frozenset(pid for pid in pids if _belongs(pid, lock, cookie))


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


def terminate(directory: ReplicaDirectory, leader: int | None) -> None:
    """Asks the process group to end."""
    _signal_group(leader, processes_of(directory), signal.SIGTERM)


def kill(directory: ReplicaDirectory, leader: int | None) -> frozenset[int]:
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


def _kill_one(pid: int, directory: ReplicaDirectory) -> None:
    with suppress(ProcessLookupError, PermissionError, OSError):
        # The descriptor pins the process, so after this second check it is still the one we mean.
        descriptor = os.pidfd_open(pid)
        try:
            cookie = os.fsencode(f"{COOKIE}={directory.path}")
            if _belongs(pid, directory.lock.stat(), cookie):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
