"""Workloads after a change: what was admitted of each, how far it came, and the table of them."""

from collections.abc import Mapping, Sequence

from durable.activities.steps import Admitted
from durable.cli.render.tables import print_table
from durable.model.workload import WorkloadKind, WorkloadManifest
from durable.signals.status import WorkloadStatus
from durable.validation.value import Value


class Applied(Value):
    """One workload after a change: what was admitted, and how far it came."""

    workload: str
    kind: WorkloadKind
    generation: int
    regions: Mapping[str, int]
    phase: str
    status: WorkloadStatus | None


def applied_row(
    manifest: WorkloadManifest, admitted: Admitted, status: WorkloadStatus | None
) -> Applied:
    return Applied(
        workload=f"{manifest.tenant}/{manifest.name}",
        kind=manifest.spec.kind,
        generation=admitted.answered_generation,
        regions={str(region): len(slots) for region, slots in admitted.share.items()},
        phase="ended" if admitted.deleted else status.phase if status else "admitted",
        status=status,
    )


def print_applied(rows: Sequence[Applied]) -> None:
    heads = ("Workload", "Kind", "Generation", "Regions", "Is", "Replicas")
    print_table(heads, [_cells(row) for row in rows])


def _cells(row: Applied) -> list[str]:
    count = ""
    if row.status is not None:
        stage = "completed" if row.kind is WorkloadKind.JOB else "serving"
        count = f"{getattr(row.status, stage)} {stage} of {row.status.wanted}"
    shares = ", ".join(f"{region} {slots}" for region, slots in sorted(row.regions.items()))
    return [row.workload, row.kind, str(row.generation), shares, row.phase, count]


def failure_of(rows: Sequence[Applied]) -> str | None:
    """Which of them came to a bad end, in a sentence."""
    failed = [row.workload for row in rows if row.phase == "failed"]
    if not failed:
        return None
    have = "has" if len(failed) == 1 else "have"
    return (
        f"{', '.join(failed)} {have} failed: some replicas were given up; "
        f"see durable explain {failed[0]}."
    )
