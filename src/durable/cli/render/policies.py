"""Policy revisions for people: one in full, what would change, what became of replicas."""

from collections.abc import Sequence

import yaml
from rich.markup import escape

from durable.cli.render.output import note_missing, results
from durable.cli.render.tables import print_table
from durable.model.policy.rollout import RolledBack, ShadowReport
from durable.reports.policy import summary_of_rollout
from durable.resources.orders import PolicyDetail
from durable.validation.text import counted


def print_policy(shown: PolicyDetail) -> None:
    note_missing(shown.unreachable)
    results.print(escape(summary_of_rollout(shown.rollout)))
    for region, state in sorted(shown.regions.items()):
        results.print(f"- {region}: {state}")
    for order in shown.orders:
        results.print(escape(f"- order {order.number}: {order}"))
    results.print(escape(yaml.safe_dump(shown.spec, sort_keys=False).rstrip()))
    print_shadows(shown.shadows)
    if shown.report_count:
        print_rolled_back(RolledBack(shares=shown.report, count=shown.report_count))


def print_shadows(reports: Sequence[ShadowReport]) -> None:
    """What would have been decided otherwise, by region and workload."""
    for report in reports:
        unknown = f", {report.unrepeatable} not repeatable" if report.unrepeatable else ""
        decisions = counted(report.decisions, "recent decision")
        made = f"{report.region}: {decisions} made again{unknown}"
        changed = report.changed
        differ = "differs" if len(changed) == 1 else "differ"
        results.print(
            escape(
                f"{made}; {len(changed)} of {counted(len(report.workloads), 'workload')} {differ}"
            )
        )
        if changed:
            heads = ("Workload", "Decisions", "Placed by both", "Elsewhere", "Gained", "Lost")
            rows = [
                (
                    f"{one.tenant}/{one.workload}",
                    *map(str, (one.decisions, one.placed, one.moved, one.gained, one.lost)),
                )
                for one in changed
            ]
            print_table(heads, rows)


def print_rolled_back(report: RolledBack) -> None:
    """What became of each workload's replicas when their revision was rolled back."""
    if not report.count:
        results.print("No replica was placed under it.")
        return
    heads = ("Workload", "Region", "Decided again", "Go on", "Replaced")
    rows = [
        (
            f"{one.tenant}/{one.workload}",
            str(one.region),
            *map(str, (one.decided_again, one.goes_on, one.replaced)),
        )
        for one in report.shares
    ]
    print_table(heads, rows, "What became of replicas that it had placed")
    if report.more:
        results.print(f"and {counted(report.more, 'more workload')}")
