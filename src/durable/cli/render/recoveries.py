"""Recoveries for people: one line for each change, and the report."""

from datetime import datetime

from rich.markup import escape

from durable.cli.render.output import results
from durable.cli.render.tables import print_table
from durable.model.recovery.recoveries import RecoveryProgress, WorkloadMove


def print_recovery(now: RecoveryProgress) -> None:
    """All that is known of one recovery."""
    recovery = now.recovery
    results.print(escape(describe(now)))
    results.print(escape(f"By {recovery.actor}: {recovery.reason}"))
    if not recovery.is_over:
        results.print(escape(f"It draws on budgets of the incident {recovery.key.incident}."))
    for draw in recovery.draws:
        said = draw.refused or ("was open for it" if recovery.is_over else "open for it")
        results.print(escape(f"Recovery budget {draw.budget} of {draw.region}: {said}"))
    if now.moves:
        print_table(_HEADS, [_cells(move, recovery.lost_at) for move in now.moves])
    for finding in recovery.findings:
        results.print(escape(f"Left behind: {finding}"))


_HEADS = (
    "Workload", "Priority", "Replicas", "Moved", "Serving", "Recovered after", "Whole", "Waits for",
)  # fmt: skip


def _cells(move: WorkloadMove, lost_at: datetime) -> list[str]:
    seconds = move.seconds_to_recover(lost_at)
    return [
        f"{move.tenant}/{move.workload}",
        str(move.priority),
        str(move.replicas),
        "no" if move.moved_at is None else str(len(move.slots)),
        str(move.serving),
        "" if seconds is None else f"{seconds:.1f} s",
        "yes" if move.whole_at is not None else "no",
        move.waits,
    ]


def describe(now: RecoveryProgress) -> str:
    """`recovery/us-east/2: moving: 3 of 5 critical workloads ...; waits for ...`."""
    waits = f"; waits for {now.waits_for}" if now.waits_for else ""
    return f"{now.recovery.key}: {now.recovery.stage}: {now.report}{waits}"
