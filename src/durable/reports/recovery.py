"""A recovery for people: how far it is, what waits, and who may end it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from durable.model.recovery.recoveries import MoveProgress, RecoveryPhase, RecoveryProgress
from durable.reports.report import ITEMS_SHOWN, Offer, Report, Section, line, listed, moment, waits
from durable.signals.names import RECOVERY
from durable.signals.recoveries import RecoveryStatus
from durable.validation.text import counted

_FOR_NOW: Mapping[RecoveryPhase, Sequence[str]] = {
    RecoveryPhase.SUSPECTED: ("confirm", "veto"),
    RecoveryPhase.CONFIRMED: ("veto",),
    RecoveryPhase.MOVING: ("failback",),
    RecoveryPhase.HOLDING: ("failback", "settle"),
    RecoveryPhase.VETOED: ("confirm",),
    RecoveryPhase.DISMISSED: ("confirm",),
}


_BUDGETS = "It draws on budgets of the incident {}."
_HEADS = (
    "Workload", "Priority", "Replicas", "Moved", "Serving elsewhere", "Recovered after", "Whole",
    "Waits for",
)  # fmt: skip


def describe_recovery(status: RecoveryStatus) -> Report:
    progress = status.progress
    lines = ["No loss is known: send `confirm` if the region is lost."]
    for_now: Sequence[str] = ("confirm", "veto")
    if progress is not None:
        lines, for_now = _lines(progress), _FOR_NOW.get(progress.recovery.phase, ())
    return Report(
        title=f"Recovery of {status.region}, epoch {status.epoch}",
        summary="" if progress is None else summary_of_recovery(progress),
        lines=(*lines, *waits(status.unreachable)),
        sections=() if progress is None else _sections(progress),
        offer=Offer(RECOVERY, for_now),
        status=status,
    )


def summary_of_recovery(now: RecoveryProgress) -> str:
    """`recovery/us-east/2: moving: 3 of 5 critical workloads ...; waits for ...`."""
    why = f"; waits for {now.waits_for}" if now.waits_for else ""
    return f"{now.recovery.key}: {now.recovery.phase}: {now.report}{why}"


def _lines(progress: RecoveryProgress) -> list[str]:
    recovery = progress.recovery
    return [
        f"**{recovery.phase}** since {moment(recovery.changed_at)}; lost at "
        f"{moment(recovery.lost_at)}",
        f"By {line(f'{recovery.actor}: {recovery.reason}')}",
        *waits(progress.waits_for),
        f"**Objective**: {progress.report}",
        *(() if recovery.has_ended else (_BUDGETS.format(recovery.key.incident),)),
    ]


def _sections(progress: RecoveryProgress) -> tuple[Section, ...]:
    recovery, shown = progress.recovery, progress.moves[:ITEMS_SHOWN]
    draws = [f"{one.region} {one.budget}: {line(one.refused) or 'open'}" for one in recovery.draws]
    moves = [_move(one, recovery.lost_at) for one in shown]
    more = progress.report.workloads - len(shown)
    see = f"`durable recovery show {recovery.region}`"
    table = (_HEADS, *(_cells(one, recovery.lost_at) for one in progress.moves))
    return (
        *listed("Recovery budgets", draws),
        *listed("Workloads", moves, more, see, table),
        *listed("Left behind", [line(one) for one in recovery.findings]),
    )


def _move(move: MoveProgress, lost_at: datetime) -> str:
    moved = "not moved" if move.moved_at is None else f"{counted(move.slot_count, 'replica')} moved"
    seconds = move.seconds_to_recover(lost_at)
    took = "" if seconds is None else f", recovered after {seconds:.1f} s"
    whole = ", has served as a whole" if move.whole_at is not None else ""
    # How many serve elsewhere is counted only until it is given back.
    now = ", given back" if move.returned_at is not None else f", {move.serving} serving elsewhere"
    why = f"; waits: {line(move.waits)}" if move.waits else ""
    return f"{move.tenant}/{move.workload}: {moved}{took}{whole}{now}{why}"


def _cells(move: MoveProgress, lost_at: datetime) -> Sequence[str]:
    seconds = move.seconds_to_recover(lost_at)
    return (
        f"{move.tenant}/{move.workload}",
        str(move.priority),
        str(move.replicas),
        "no" if move.moved_at is None else str(move.slot_count),
        "given back" if move.returned_at is not None else str(move.serving),
        "" if seconds is None else f"{seconds:.1f} s",
        "yes" if move.whole_at is not None else "no",
        move.waits,
    )
