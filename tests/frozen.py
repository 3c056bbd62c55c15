"""A server that hangs: every process of it is stopped, and goes on where it was afterwards."""

import os
import signal
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from durable.stack.postgres.server import EmbeddedPostgres


@contextmanager
def frozen(server: EmbeddedPostgres) -> Generator[None]:
    """The kernel still accepts connections for it, and nobody answers them."""
    _send(signal.SIGSTOP, server)
    try:
        yield
    finally:
        _send(signal.SIGCONT, server)


def freeze_for_good(server: EmbeddedPostgres) -> None:
    """As `frozen`, for whoever kills it afterwards."""
    _send(signal.SIGSTOP, server)


def kill(server: EmbeddedPostgres) -> None:
    """Every process of it at once; nothing is flushed or said."""
    _send(signal.SIGKILL, server)


def _send(number: signal.Signals, server: EmbeddedPostgres) -> None:
    # The postmaster first: what it forks no more cannot be missed.
    for pid in (server.pid, *_children(server.pid)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # a backend whose client has gone


def _children(pid: int) -> Iterable[int]:
    # Each of them leads a group of its own, so there is no group to signal.
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return (int(child) for child in listed.split())
