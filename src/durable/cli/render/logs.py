"""The log files of replicas on this machine: found, and printed."""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from durable.agent.process.replica_directory import ReplicaDirectory
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import Slot, TenantId, WorkloadName


@dataclass(frozen=True)
class ReplicaFiles:
    """One attempt at one slot: its assignment, and the directory of its process."""

    assignment: Assignment
    directory: ReplicaDirectory

    def __str__(self) -> str:
        one = self.assignment
        return (
            f"{one.tenant}/{one.workload} slot {one.slot}, generation {one.generation}, attempt "
            f"{one.attempt}, on {one.node} in {one.region}: {self.state}"
        )

    @property
    def state(self) -> str:
        if self.directory.is_alive():
            return "running"
        code = self.directory.exit_code
        return "exited" if code is None else f"exited with code {code}"


def find_replica_files(
    state_dir: Path, tenant: TenantId, workload: WorkloadName, slot: Slot
) -> list[ReplicaFiles]:
    """Every attempt at a slot that has files below this directory, oldest first."""
    found: list[tuple[float, ReplicaFiles]] = []
    for directory in _directories(state_dir):
        one = directory.assignment()
        if one is not None and (one.tenant, one.workload, one.slot) == (tenant, workload, slot):
            found.append((_started_at(directory), ReplicaFiles(one, directory)))
    return [files for _, files in sorted(found, key=lambda pair: pair[0])]


def _directories(state_dir: Path) -> Iterable[ReplicaDirectory]:
    paths = (state_dir / "agents").absolute().glob("*/*/assignment.json")
    return (ReplicaDirectory(path.parent) for path in paths)


def _started_at(directory: ReplicaDirectory) -> float:
    # Attempts are numbered per region and generation; only time orders them across regions.
    return (directory.path / "assignment.json").stat().st_mtime


POLL_SECONDS = 0.2
MAX_BYTES = 1024**2


@dataclass(frozen=True)
class LogFile:
    """What a replica wrote to one of its streams."""

    stream: str
    path: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0


def tail(path: Path) -> bytes:
    """The newest part of a file."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_BYTES))
        return file.read(MAX_BYTES)


def print_logs(files: Sequence[LogFile], follow: bool) -> None:
    """Prints what is in the files now and, if asked to, what is added until an interrupt."""
    copier = _Copier(with_headings=len(files) > 1)
    positions: dict[LogFile, int] = {}
    for file in files:
        positions[file] = file.size
        copier.add(file, tail(file.path))
    try:
        while follow:
            time.sleep(POLL_SECONDS)
            for file in files:
                positions[file] = copier.rest(file, positions[file])
    except KeyboardInterrupt:
        return


class _Copier:
    """Writes to stdout; a heading says whose text follows whenever that changes."""

    def __init__(self, *, with_headings: bool) -> None:
        self._with_headings = with_headings
        self._last: LogFile | None = None
        self._ends_line = True

    def rest(self, file: LogFile, position: int) -> int:
        """Copies what was added after the position, and returns the next one."""
        size = file.size
        # An agent truncates a log that has grown too long.
        position = 0 if size < position else position
        if size == position:
            return position
        with file.path.open("rb") as opened:
            opened.seek(position)
            more = opened.read(MAX_BYTES)
        self.add(file, more)
        return position + len(more)

    def add(self, file: LogFile, text: bytes) -> None:
        out = sys.stdout.buffer
        if self._with_headings and file != self._last:
            before = b"" if self._ends_line else b"\n"
            empty = b"" if text else b" (empty)"
            out.write(before + f"==> {file.stream} <==".encode() + empty + b"\n")
            self._last, self._ends_line = file, True
        if text:
            out.write(text)
            self._ends_line = text.endswith(b"\n")
        out.flush()
