"""Which workloads move next, how far each has come, and whether the objective was met. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from durable.model.recovery.detection import RecoveryPolicy
from durable.model.recovery.recoveries import (
    MOVES_SHOWN,
    MoveProgress,
    Recovery,
    RecoveryReport,
    WorkloadMove,
)
from durable.model.work.workload import WorkloadKind
from durable.planners.recovery.objective import is_critical, recovered_at

# Ordinary work comes after critical work, best effort last.
ORDINARY_PRIORITY = 100
LAST_RANK = 2
# The next class does not wait longer than this for one that neither finds a node nor says why.
PATIENCE = timedelta(seconds=20)
# After how long a hint counts as lost, how often one is sent again, and for how long each time:
# a sender looks about every second, and may miss a look when it has just been restarted.
UNHEARD, UNHEARD_AGAIN = timedelta(seconds=10), timedelta(seconds=20)
TOLD_FOR = timedelta(seconds=3)
EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class MovedReplicas:
    """What other regions know of a workload: by slot since when it serves, if it does."""

    serving_since: Mapping[int, datetime] = field(default_factory=dict[int, datetime])
    placed: frozenset[int] = frozenset()
    # Slots of a job that are done: they run nowhere again.
    done: frozenset[int] = frozenset()
    # What its next replica waits for.
    waits: str = ""


def rank(priority: int, policy: RecoveryPolicy) -> int:
    """The class of work: 0 is critical, and goes first."""
    if priority >= policy.critical_priority:
        return 0
    return 1 if priority >= ORDINARY_PRIORITY else LAST_RANK


def draws_on_budgets(priority: int) -> bool:
    """Best effort does not: what it took, critical work of a later loss would not find."""
    return priority >= ORDINARY_PRIORITY


def may_take_over(
    ours: Iterable[WorkloadMove], theirs: Iterable[WorkloadMove], policy: RecoveryPolicy
) -> bool:
    """Whether a budget that is open for another recovery goes to this one.

    Budgets are for critical work first: that of both waits for its turn, and what is not critical
    gives way to what is. What has been drawn stays drawn.
    """
    return _critical_waits(ours, policy) and not _critical_waits(theirs, policy)


def _critical_waits(moves: Iterable[WorkloadMove], policy: RecoveryPolicy) -> bool:
    return any(
        one.whole_at is None and one.lost and is_critical(one.priority, one.kind, policy)
        for one in moves
    )


def next_moves(
    moves: Iterable[WorkloadMove],
    policy: RecoveryPolicy,
    now: datetime,
    *,
    with_refused: bool = False,
) -> list[WorkloadMove]:
    """The next workloads to move: class by class, few at once, so many in a second.

    A class begins when everything of the one before it has a node, or says what it waits for: what
    is scarce goes to those that come first. Of what has no objective, a quarter as many move at a
    time, which leaves the control plane to all others. What was refused a place may be tried
    again in places that are left, whichever waits longest for a try: many that never find one keep
    nothing else.
    """

    def by_class(one: WorkloadMove) -> tuple[int, int, object]:
        return (rank(one.priority, policy), -one.priority, one.name)

    known = list(moves)
    in_flight = [one for one in known if _is_in_flight(one, now)]
    pending = [one for one in known if one.moved_at is None]
    fresh = sorted((one for one in pending if not one.waits), key=by_class)
    refused = [one for one in pending if one.waits and with_refused]
    refused.sort(key=lambda one: (one.tried_at or EARLIEST, by_class(one)))
    begun = min((rank(one.priority, policy) for one in (*fresh, *in_flight)), default=LAST_RANK)
    lately = _lately((one.moved_at for one in known), now)
    chosen = [one for one in (*fresh, *refused) if rank(one.priority, policy) <= begun]
    is_urgent = any(rank(one.priority, policy) == 0 for one in (*chosen, *in_flight))
    at_once = policy.moves_at_once if is_urgent else max(1, policy.moves_at_once // 4)
    most = min(at_once - len(in_flight), _per_second(policy) - lately)
    return sorted(chosen[: max(0, most)], key=by_class)


def next_returns(
    moves: Iterable[WorkloadMove], policy: RecoveryPolicy, now: datetime
) -> list[WorkloadMove]:
    """The next workloads that go back, the least important ones first: nothing is in a hurry.

    What was refused is tried in turn, after what was not.
    """
    known = list(moves)
    waiting = sorted(
        filter(goes_back, known),
        key=lambda one: (
            one.tried_at if one.waits and one.tried_at else EARLIEST,
            one.priority,
            one.name,
        ),
    )
    lately = _lately((one.returned_at for one in known), now)
    most = min(policy.moves_at_once, _per_second(policy)) - lately
    return waiting[: max(0, most)]


def goes_back(move: WorkloadMove) -> bool:
    """Whether it is still to be given back; a job's slots are done where they are."""
    is_service = move.kind is WorkloadKind.SERVICE
    return is_service and move.moved_at is not None and move.returned_at is None


def _per_second(policy: RecoveryPolicy) -> int:
    return max(1, int(policy.moves_per_second))


def _lately(moments: Iterable[datetime | None], now: datetime) -> int:
    """How many of these were within the last second."""
    second_ago = now - timedelta(seconds=1)
    return sum(1 for one in moments if one is not None and one > second_ago)


def _is_in_flight(move: WorkloadMove, now: datetime) -> bool:
    if move.moved_at is None or move.waits or move.placed >= len(move.lost):
        return False
    return now - move.moved_at < PATIENCE


def is_unheard(moved_at: datetime | None, now: datetime) -> bool:
    """Whether a workload that was moved then, and shows nothing of it, is notified of it once more.

    What moved it may have died before it could say so. What has heard of it and only waits is
    not asked every second.
    """
    if moved_at is None:
        return False
    age = now - moved_at
    return age >= UNHEARD and (age - UNHEARD) % UNHEARD_AGAIN < TOLD_FOR


def is_settled(move: WorkloadMove, now: datetime) -> bool:
    """Whether nothing more is to be expected of it soon: it serves, or says what it waits for."""
    if move.moved_at is None:
        return bool(move.waits)
    return move.whole_at is not None or not _is_in_flight(move, now)


def is_measured_on(move: WorkloadMove, policy: RecoveryPolicy) -> bool:
    """Whether something of it is still to be seen; only critical work has an objective."""
    if move.whole_at is None:
        return True
    return move.recovered_at is None and is_critical(move.priority, move.kind, policy)


def measure(
    move: WorkloadMove, found: MovedReplicas, policy: RecoveryPolicy, lost_at: datetime
) -> WorkloadMove:
    """The move with what was found; a moment that was reached once stays."""
    lost = move.lost
    recovered = move.recovered_at
    if recovered is None:
        recovered = recovered_at(lost, found.serving_since, policy, lost_at)
    serving = [found.serving_since[slot] for slot in lost if slot in found.serving_since]
    missing = set(lost).difference(found.serving_since, found.done)
    whole = move.whole_at
    if whole is None and move.moved_at is not None and not missing:
        whole = max([move.moved_at, *serving])
    changed = {
        "serving": len(serving),
        "placed": len((found.placed | found.done).intersection(lost)),
        "recovered_at": recovered,
        "whole_at": whole,
        "waits": found.waits if move.moved_at is not None else move.waits,
    }
    return move.model_copy(update=changed)


def report_on(
    recovery: Recovery, moves: Sequence[WorkloadMove], policy: RecoveryPolicy, now: datetime
) -> RecoveryReport:
    """How the recovery has gone until now."""
    critical = [one for one in moves if is_critical(one.priority, one.kind, policy)]
    seconds = {one.name: one.seconds_to_recover(recovery.lost_at) for one in critical}
    reached = [one for one in seconds.values() if one is not None]
    ended = recovery.ended_at or now
    is_late = (ended - recovery.lost_at).total_seconds() > policy.objective_seconds
    late = sum(1 for one in reached if one > policy.objective_seconds)
    return RecoveryReport(
        workloads=len(moves),
        replicas=sum(len(one.slots) for one in moves),
        moved=sum(1 for one in moves if one.moved_at is not None),
        whole=sum(1 for one in moves if one.whole_at is not None),
        critical=len(critical),
        recovered=len(reached),
        objective_replicas=policy.objective_replicas,
        objective_seconds=policy.objective_seconds,
        slowest_seconds=max(reached, default=None),
        missed=late + (len(critical) - len(reached) if is_late else 0),
    )


def most_telling(moves: Iterable[WorkloadMove], policy: RecoveryPolicy) -> list[MoveProgress]:
    """The few moves that a page shows: critical ones first, and those that wait."""
    ordered = sorted(
        moves,
        key=lambda one: (rank(one.priority, policy), not one.waits, -one.priority, one.name),
    )
    return [move.progress() for move in ordered[:MOVES_SHOWN]]
