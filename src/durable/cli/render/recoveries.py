"""Recoveries for people: rows of a list, one line for each change, and the report."""

from datetime import datetime
from typing import ClassVar

from rich.markup import escape

from durable.cli.render.output import progress, results
from durable.cli.render.tables import Row, print_rows
from durable.model.ids import ActorId, IncidentId, RegionId
from durable.model.recovery.recoveries import (
    Recovery,
    RecoveryProgress,
    RecoveryStage,
    WorkloadMove,
)


class RecoveryRow(Row):
    json_only: ClassVar[frozenset[str]] = frozenset({"epoch", "incident", "lost_at", "findings"})

    recovery: str
    region: RegionId
    epoch: int
    incident: IncidentId
    stage: RecoveryStage
    by: ActorId
    reason: str
    lost_at: datetime
    started_at: datetime
    ended_at: datetime | None
    findings: tuple[str, ...]


class MoveRow(Row):
    workload: str
    priority: int
    replicas: int
    moved: str
    serving: int
    recovered_after: str
    whole: str
    waits_for: str


def recovery_row(recovery: Recovery) -> RecoveryRow:
    return RecoveryRow(
        recovery=str(recovery.key),
        region=recovery.region,
        epoch=recovery.epoch,
        incident=recovery.key.incident,
        stage=recovery.stage,
        by=recovery.actor,
        reason=recovery.reason,
        lost_at=recovery.lost_at,
        started_at=recovery.started_at,
        ended_at=recovery.ended_at,
        findings=recovery.findings,
    )


def move_row(move: WorkloadMove, lost_at: datetime) -> MoveRow:
    seconds = move.seconds_to_recover(lost_at)
    return MoveRow(
        workload=f"{move.tenant}/{move.workload}",
        priority=move.priority,
        replicas=move.replicas,
        moved="no" if move.moved_at is None else str(len(move.slots)),
        serving=move.serving,
        recovered_after="" if seconds is None else f"{seconds:.1f} s",
        whole="yes" if move.whole_at is not None else "no",
        waits_for=move.waits,
    )


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
        rows = [move_row(move, recovery.lost_at) for move in now.moves]
        print_rows("workloads", rows, len(rows), False, "nothing was there")
    for finding in recovery.findings:
        results.print(escape(f"Left behind: {finding}"))


class RecoveryLines:
    """A line on stderr whenever something changes."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, now: RecoveryProgress) -> None:
        line = describe(now)
        if line != self._last:
            self._last = line
            progress.print(escape(line))


def describe(now: RecoveryProgress) -> str:
    """`recovery/us-east/2: moving: 3 of 5 critical workloads ...; waits for ...`."""
    waits = f"; waits for {now.waits_for}" if now.waits_for else ""
    return f"{now.recovery.key}: {now.recovery.stage}: {now.report}{waits}"
