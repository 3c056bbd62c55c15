"""Workloads after a change, for people and programs."""

from collections.abc import Mapping, Sequence

from durable.activities.workload_steps import AdmissionAnswer
from durable.cli.render.tables import print_table
from durable.model.work.workload import WorkloadKind, WorkloadManifest
from durable.signals.status import WorkloadStatus
from durable.validation.value import Value


class AppliedWorkload(Value):
    """One workload after a change: what was admitted, and how far it came."""

    workload: str
    kind: WorkloadKind
    generation: int
    regions: Mapping[str, int]
    phase: str
    # Why it was rolled back; None if it was not.
    undone: str | None = None
    status: WorkloadStatus | None


def applied_row(
    manifest: WorkloadManifest,
    admitted: AdmissionAnswer,
    status: WorkloadStatus | None,
    *,
    has_ended: bool = False,
    undone: str | None = None,
) -> AppliedWorkload:
    phase = "ended" if has_ended else status.phase if status else "admitted"
    return AppliedWorkload(
        workload=f"{manifest.tenant}/{manifest.name}",
        kind=manifest.spec.kind,
        generation=admitted.generation,
        regions={str(region): len(slots) for region, slots in admitted.share.items()},
        phase=phase if undone is None else "rolled back",
        undone=undone,
        status=status,
    )


def print_applied(rows: Sequence[AppliedWorkload]) -> None:
    heads = ["Workload", "Kind", "Generation", "Regions", "Phase", "Replicas"]
    cells = [_applied_cells(row) for row in rows]
    if any(row.undone for row in rows):
        heads.append("Reason")
        cells = [[*some, row.undone or ""] for some, row in zip(cells, rows, strict=True)]
    print_table(heads, cells)


def _applied_cells(row: AppliedWorkload) -> list[str]:
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


def undone_of(rows: Sequence[AppliedWorkload]) -> str | None:
    """What was rolled back, and why, in a sentence."""
    undone = [row for row in rows if row.undone is not None]
    if not undone:
        return None
    others = len(undone) - 1
    more = f" {others} more {'was' if others == 1 else 'were'} rolled back too." if others else ""
    return f"{undone[0].undone}{more} See `durable rollout history {undone[0].workload}`."
