"""The files of replicas on this machine, whether they run or have ended."""

from collections.abc import Iterable
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
