"""Room on a disk: servers that find none cannot write, and do not even start."""

import os
from pathlib import Path

# PostgreSQL's write-ahead log grows by files of 16 MiB.
MIN_FREE_BYTES = 32 * 2**20


def free_bytes(path: Path) -> int | None:
    """What a process that is not root can still write there; None if there is no such path."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def is_full(path: Path) -> bool:
    left = free_bytes(path)
    return left is not None and left < MIN_FREE_BYTES
