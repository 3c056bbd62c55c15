"""Choose TCP ports on 127.0.0.1 and tell who listens on them."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Container, Iterable
from itertools import chain
from pathlib import Path

HOST = "127.0.0.1"
LISTEN = "0A"
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


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on the port (off Linux: whether anyone does)."""
    if sys.platform != "linux":
        return not is_free(port)
    try:
        inodes = _listening_inodes(port)
        return any(os.readlink(entry) in inodes for entry in Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        # A descriptor or the process itself went away while we looked.
        return False


def _listening_inodes(port: int) -> set[str]:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = (line.split() for line in lines)
    return {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == LISTEN and int(row[1].rpartition(":")[2], 16) == port
    }
