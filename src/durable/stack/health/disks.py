"""Whether the disks under our servers have room: a full one stops every change."""

from pathlib import Path

from durable.stack.disks import free_bytes, is_full
from durable.stack.health.findings import Finding, disk_full
from durable.state_dir.record import StackRecord

# The servers of a stack, by the folder in its directory where they write.
SERVERS = {"postgres": "PostgreSQL", "temporal": "Temporal"}


def full_disks(state_dir: Path, record: StackRecord) -> list[Finding]:
    """Of the servers that are ours: others' disks cannot be seen from here."""
    ours = {part.name for part in record.parts if part.ours}
    return [
        disk_full(server, path, free_bytes(path) or 0)
        for folder, server in SERVERS.items()
        if folder in ours and is_full(path := state_dir / folder)
    ]
