"""Simulated losses of regions, as a table."""

from collections.abc import Sequence

from durable.cli.render.output import results
from durable.cli.render.tables import print_table
from durable.model.recovery.readiness import LossOutlook, WorkloadReadiness


def print_outlooks(outlooks: Sequence[LossOutlook]) -> None:
    """One row for each critical workload and region that it would lose."""
    rows = [_cells(outlook, one) for outlook in outlooks for one in outlook.workloads]
    if rows:
        heads = ("If lost", "Workload", "Loses", "Keeps", "Recovers", "Where", "About", "Objective")
        print_table(list(heads), rows)
    for outlook in outlooks:
        for region, why in outlook.unusable.items():
            results.print(f"If {outlook.region} were lost, {region} could take nothing: {why}")
        if not outlook.workloads:
            results.print(f"No critical workload has replicas in {outlook.region}.")
    late = [(outlook, one) for outlook in outlooks for one in outlook.workloads if not one.is_met]
    for outlook, one in late:
        name = f"{one.tenant}/{one.workload}"
        results.print(f"[red]If {outlook.region} were lost, {name}:[/] {one.missing}")
    if not late:
        results.print("Every critical workload would be back within its objective.")


def _cells(outlook: LossOutlook, one: WorkloadReadiness) -> list[str]:
    where = ", ".join(f"{region} {count}" for region, count in sorted(one.recovers.items()))
    return [
        str(outlook.region),
        f"{one.tenant}/{one.workload}",
        str(one.lost),
        str(one.kept),
        f"{one.recovered} of {one.lost}",
        where or "nowhere",
        f"{one.estimated_seconds:.0f} s",
        "met" if one.is_met else "missed",
    ]
