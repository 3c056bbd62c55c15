"""Room on a disk: servers that find none cannot write, and do not even start."""

import os
from pathlib import Path

from durable.health.findings import FindingCode, HealthFinding, finding
from durable.state_dir.record import StackRecord

# The servers of a stack, by the folder in its directory where they write.
SERVERS = {"postgres": "PostgreSQL", "temporal": "Temporal"}

# PostgreSQL's write-ahead log grows by files of 16 MiB.
MIB = 2**20
MIN_FREE_BYTES = 32 * MIB


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


def full_disks(state_dir: Path, record: StackRecord) -> list[HealthFinding]:
    """Of the servers that are ours: others' disks cannot be seen from here."""
    ours = {part.name for part in record.parts if part.ours}
    return [
        finding(
            FindingCode.DISK_FULL, str(path), part=server, free_mib=(free_bytes(path) or 0) / MIB
        )
        for folder, server in SERVERS.items()
        if folder in ours and is_full(path := state_dir / folder)
    ]
