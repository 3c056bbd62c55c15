"""A recovery's page in the Temporal UI: how far it is, what waits, what can be sent."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from durable.model.recovery.recoveries import RecoveryProgress, RecoveryStage, WorkloadMove
from durable.signals.names import RECOVERY
from durable.signals.recoveries import RecoveryStatus
from durable.workflows.page_parts import (
    examples,
    line,
    moment,
    paragraphs,
    rejected_lines,
)

SHOWN = 20

_FOR_NOW: Mapping[RecoveryStage, Sequence[str]] = {
    RecoveryStage.SUSPECTED: ("confirm", "veto"),
    RecoveryStage.CONFIRMED: ("veto",),
    RecoveryStage.MOVING: ("failback",),
    RecoveryStage.HOLDING: ("failback", "settle"),
    RecoveryStage.VETOED: ("confirm",),
    RecoveryStage.DISMISSED: ("confirm",),
}


def recovery_page(status: RecoveryStatus, request_id: str) -> str:
    """`request_id` is one that no message had yet, so that the examples work when pasted."""
    lines = [f"## Recovery of {status.region}, epoch {status.epoch}"]
    progress = status.progress
    for_now: Sequence[str] = ("confirm", "veto")
    if progress is None:
        lines.append("Nobody knows of a loss: send `confirm` if the region is lost.")
    else:
        lines += _progress(progress)
        for_now = _FOR_NOW.get(progress.recovery.stage, ())
    if status.unreachable:
        lines.append(f"**Waits**: {line(status.unreachable)}")
    return paragraphs(
        [*lines, *rejected_lines(status), *examples(RECOVERY, request_id, {}, for_now)]
    )


def _progress(progress: RecoveryProgress) -> list[str]:
    recovery = progress.recovery
    lines = [
        f"**{recovery.stage}** since {moment(recovery.changed_at)}; lost at "
        f"{moment(recovery.lost_at)}",
        f"By {line(f'{recovery.actor}: {recovery.reason}')}",
    ]
    if progress.waits_for:
        lines.append(f"**Waits**: {line(progress.waits_for)}")
    lines.append(f"**Objective**: {progress.report}")
    if recovery.draws:
        lines.append("### Recovery budgets")
        lines += [f"- {one.region} {one.budget}: {line(one.refused) or 'open'}"
                  for one in recovery.draws]  # fmt: skip
    if progress.moves:
        shown = progress.moves[:SHOWN]
        lines += ["### Workloads", *(_move(one, recovery.lost_at) for one in shown)]
        more = progress.report.workloads - len(shown)
        lines += [f"- and {more} more: `durable recovery show {recovery.region}`"] if more else []
    if recovery.findings:
        lines += ["### Left behind", *(f"- {line(one)}" for one in recovery.findings)]
    return lines


def _move(move: WorkloadMove, lost_at: datetime) -> str:
    moved = "not moved" if move.moved_at is None else f"{len(move.slots)} replicas moved"
    whole = ", serves as a whole" if move.whole_at is not None else ""
    seconds = move.seconds_to_recover(lost_at)
    took = "" if seconds is None else f" after {seconds:.1f} s"
    waits = f"; waits: {line(move.waits)}" if move.waits else ""
    return f"- {move.tenant}/{move.workload}: {moved}, {move.serving} serving{took}{whole}{waits}"
