"""TCP ports of this machine: choose a free one, and see which process listens or is connected."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Container, Iterable
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

HOST = "127.0.0.1"
DATABASE_PORT = 5432
# Socket states as /proc/net/tcp writes them.
LISTEN = "0A"
ESTABLISHED = "01"
LOCAL_COLUMN = 1
REMOTE_COLUMN = 2
FREE_PORT_ATTEMPTS = 100


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Servers set this too: a port in TIME_WAIT is free for them.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def choose_port(preferred: Iterable[int], *, avoid: Container[int] = ()) -> int:
    """The first preferred port that is free, else any free one."""
    candidates = chain(preferred, (free_port() for _ in range(FREE_PORT_ATTEMPTS)))
    return next(port for port in candidates if port not in avoid and is_free(port))


def port_of(database_url: str) -> int:
    return urlsplit(database_url).port or DATABASE_PORT


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on the port (off Linux: whether anyone does)."""
    if sys.platform != "linux":
        return not is_free(port)
    return _has_socket(pid, LISTEN, LOCAL_COLUMN, port)


def is_connected(pid: int, port: int) -> bool:
    """Whether this very process is connected to that port (off Linux, that is unknown).

    The kernel knows; neither the process nor the server has to be asked.
    """
    if sys.platform != "linux":
        return True
    return _has_socket(pid, ESTABLISHED, REMOTE_COLUMN, port)


def _has_socket(pid: int, state: str, column: int, port: int) -> bool:
    try:
        inodes = _inodes(state, column, port)
        return bool(inodes) and any(
            os.readlink(entry) in inodes for entry in Path(f"/proc/{pid}/fd").iterdir()
        )
    except (FileNotFoundError, ProcessLookupError):
        # A descriptor or the process itself went away while we looked.
        return False


def _inodes(state: str, column: int, port: int) -> set[str]:
    """The sockets of this machine in that state whose address in that column has the port."""
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
        if row[3] == state and int(row[column].rpartition(":")[2], 16) == port
    }
