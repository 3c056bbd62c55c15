"""Whether a process has reached a server: the kernel's word, which asks nothing of either."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

ESTABLISHED = "01"
DATABASE_PORT = 5432


def is_connected(pid: int, port: int) -> bool:
    """Whether this very process has a connection to that port (off Linux: nobody can tell)."""
    if sys.platform != "linux":
        return True
    try:
        inodes = _inodes(port)
        return bool(inodes) and any(
            os.readlink(entry) in inodes for entry in Path(f"/proc/{pid}/fd").iterdir()
        )
    except (FileNotFoundError, ProcessLookupError):
        # A descriptor or the process itself went away while we looked.
        return False


def port_of(database_url: str) -> int:
    return urlsplit(database_url).port or DATABASE_PORT


def _inodes(port: int) -> set[str]:
    """The sockets of this machine that are connected to the port, of either family."""
    lines = [
        line
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    rows = (line.split() for line in lines)
    return {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == ESTABLISHED and int(row[2].rpartition(":")[2], 16) == port
    }
