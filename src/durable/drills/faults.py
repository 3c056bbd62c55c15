"""Faults of drills: simulated nodes are lost, and a PostgreSQL hangs as its machine would."""

import json
import os
import signal
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from durable.agent.simulated.faults import FaultKind, FaultsError, InjectedFault, read_faults
from durable.model.ids import RegionId
from durable.stack.control_plane import FAULTS
from durable.stack.stack import OF_REGION
from durable.state_dir.record import StackError, read_record

GLOBAL = "postgres"


class BrokenNodes:
    """Nodes that are lost for as long as a drill wants; however it ends, none stays broken.

    Faults that were in the file before a drill are in it afterwards.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FAULTS
        try:
            self._before = read_faults(self._path)
        except FaultsError as error:
            raise StackError(f"The faults of this stack cannot be read: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def lose(self, *, kind: FaultKind = FaultKind.LOST, **where: str) -> None:
        """Takes away the simulated nodes of a region or a zone, or cuts them off.

        Of a fault of replicas, `where` names nodes and the workload.
        """
        lost = InjectedFault.model_validate({"kind": kind, **where})
        self._write((*self._before, lost))

    def give_back(self) -> None:
        """Gives back whatever was taken away."""
        self._write(self._before)

    def _write(self, faults: tuple[InjectedFault, ...]) -> None:
        """Replaced as a whole: the agent never reads half of it."""
        new = self._path.with_suffix(".new")
        content = [fault.model_dump(mode="json", exclude_none=True) for fault in faults]
        new.write_text(json.dumps(content))
        new.replace(self._path)


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
    """Inside, the kernel still takes connections for it, and does not answer them."""
    # The server first: what it forks no more cannot be missed.
    _send(signal.SIGSTOP, [pid])
    _send(signal.SIGSTOP, _children(pid))
    try:
        yield
    finally:
        _send(signal.SIGCONT, [*_children(pid), pid])


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
