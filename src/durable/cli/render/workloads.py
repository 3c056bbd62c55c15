"""Workloads after a change, for people and programs."""

from collections.abc import Mapping, Sequence
from typing import Self

from durable.cli.render.tables import print_table
from durable.model.work.workload import AdmittedWorkload, WorkloadKind
from durable.signals.status import WorkloadStatus
from durable.validation.value import Value


class AppliedWorkload(Value):
    """One workload after a change: what was admitted, and how far it came."""

    workload: str
    kind: WorkloadKind
    generation: int
    regions: Mapping[str, int]
    phase: str = "admitted"
    # Why it was rolled back; None if it was not.
    rolled_back: str | None = None
    status: WorkloadStatus | None = None

    @classmethod
    def of(cls, name: str, admitted: AdmittedWorkload, phase: str = "admitted") -> Self:
        return cls(
            workload=name,
            kind=admitted.spec.kind,
            generation=admitted.generation,
            regions={str(region): len(slots) for region, slots in admitted.share.items()},
            phase=phase,
        )

    def after(self, status: WorkloadStatus | None, rolled_back: str | None = None) -> Self:
        """The same, once it was waited for."""
        phase = self.phase if status is None else status.phase
        phase = phase if rolled_back is None else "rolled back"
        return self.model_copy(
            update={"phase": phase, "rolled_back": rolled_back, "status": status}
        )


def print_applied(rows: Sequence[AppliedWorkload]) -> None:
    heads = ["Workload", "Kind", "Generation", "Regions", "Phase", "Replicas"]
    cells = [_cells(row) for row in rows]
    if any(row.rolled_back for row in rows):
        heads.append("Reason")
        cells = [[*some, row.rolled_back or ""] for some, row in zip(cells, rows, strict=True)]
    print_table(heads, cells)


def _cells(row: AppliedWorkload) -> list[str]:
    count = ""
    if row.status is not None:
        phase = "completed" if row.kind is WorkloadKind.JOB else "serving"
        count = f"{getattr(row.status, phase)} {phase} of {row.status.wanted}"
    shares = ", ".join(f"{region} {slots}" for region, slots in sorted(row.regions.items()))
    return [row.workload, row.kind, str(row.generation), shares, row.phase, count]


def failure_of(rows: Sequence[AppliedWorkload]) -> str | None:
    """Which of them failed, in a sentence."""
    failed = [row.workload for row in rows if row.phase == "failed"]
    if not failed:
        return None
    have = "has" if len(failed) == 1 else "have"
    return (
        f"{', '.join(failed)} {have} failed: some replicas were given up; "
        f"see `durable explain {failed[0]}`."
    )


def rollback_of(rows: Sequence[AppliedWorkload]) -> str | None:
    """What was rolled back, and why, in a sentence."""
    rolled_back = [row for row in rows if row.rolled_back is not None]
    if not rolled_back:
        return None
    others = len(rolled_back) - 1
    more = f" {others} more {'was' if others == 1 else 'were'} rolled back too." if others else ""
    first = rolled_back[0]
    return f"{first.rolled_back}{more} See `durable rollout history {first.workload}`."
