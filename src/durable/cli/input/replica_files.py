"""The files that replicas left on this machine, found by what each was assigned."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from durable.agent.replica_directory import ReplicaDirectory
from durable.authority.fleet.assignments import Assignment
from durable.model.ids import Slot, TenantId, WorkloadName


@dataclass(frozen=True)
class ReplicaFiles:
    """One attempt at one slot: what was assigned, and the directory that was made for it."""

    assignment: Assignment
    directory: ReplicaDirectory

    def __str__(self) -> str:
        of = self.assignment
        return (
            f"{of.tenant}/{of.workload} slot {of.slot}, generation {of.generation}, attempt "
            f"{of.attempt}, on {of.node} in {of.region}: {self.state}"
        )

    @property
    def state(self) -> str:
        if self.directory.lives():
            return "runs"
        code = self.directory.exit_code
        return "has ended" if code is None else f"ended with exit code {code}"


def replica_files(
    state_dir: Path, tenant: TenantId, workload: WorkloadName, slot: Slot
) -> list[ReplicaFiles]:
    """Every attempt at a slot that has files below this directory, in the order of their begin."""
    found: list[tuple[float, ReplicaFiles]] = []
    for directory in _directories(state_dir):
        of = directory.assignment()
        if of is not None and (of.tenant, of.workload, of.slot) == (tenant, workload, slot):
            found.append((_begun_at(directory), ReplicaFiles(of, directory)))
    return [files for _, files in sorted(found, key=lambda pair: pair[0])]


def _directories(state_dir: Path) -> Iterable[ReplicaDirectory]:
    paths = (state_dir / "agents").absolute().glob("*/*/assignment.json")
    return (ReplicaDirectory(path.parent) for path in paths)


def _begun_at(directory: ReplicaDirectory) -> float:
    # Attempts are counted per region and generation; only time orders those of several regions.
    return (directory.path / "assignment.json").stat().st_mtime
