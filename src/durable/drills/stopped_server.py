"""Stops a PostgreSQL of the stack with all its sessions, as a machine that hangs would."""

import os
import signal
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from durable.model.ids import RegionId
from durable.stack.stack import OF_REGION
from durable.state_dir.record import StackError, read_record

GLOBAL = "postgres"


def servers_of(directory: Path) -> Mapping[RegionId | None, int]:
    """The process of the global database (None), and of each region that has one of its own."""
    record = read_record(directory)
    parts = () if record is None else record.parts
    running = {part.name: part.process.pid for part in parts if part.process is not None}
    if GLOBAL not in running:
        raise StackError("The drill stops the stack's own PostgreSQL, and none runs here.")
    of_regions = {
        RegionId(name.removeprefix(OF_REGION)): pid
        for name, pid in running.items()
        if name.startswith(OF_REGION)
    }
    return {None: running[GLOBAL], **of_regions}


@contextmanager
def stopped(pid: int) -> Generator[None]:
    """Inside, the kernel still takes connections for it, and nobody answers them."""
    # The server first: what it forks no more cannot be missed.
    _send(signal.SIGSTOP, [pid])
    _send(signal.SIGSTOP, _children(pid))
    try:
        yield
    finally:
        _send(signal.SIGCONT, [*_children(pid), pid])


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
