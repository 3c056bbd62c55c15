"""The next step of a recovery: pure, so that every case is a row of a table.

A recovery works in rounds. In a round no step is taken twice, unless the recovery has come to
another phase; when nothing is left to be done it rests, and the next round begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, assert_never

from durable.model.recovery.detection import Mode, RecoveryPolicy, Suspicion
from durable.model.recovery.recoveries import Recovery, RecoveryPhase, WorkloadMove
from durable.model.recovery.steps import RecoveryRound, RecoveryStep
from durable.model.states import RegionState
from durable.planners.recovery.detection import grace_seconds, is_due
from durable.planners.recovery.moves import is_settled
from durable.planners.rest import Rest

LOOK_SOON, LOOK_LATER = timedelta(seconds=1), timedelta(seconds=10)
# What was given back is waited for so long; then the recovery ends, and says what is not there.
FAILBACK_PATIENCE = timedelta(minutes=15)


@dataclass(frozen=True)
class ObservedRecovery:
    """A recovery as the authority has it at one moment, and what this round has learned."""

    recovery: Recovery
    policy: RecoveryPolicy
    now: datetime
    # What the global side knows of the region.
    state: RegionState
    epoch: int
    suspicion: Suspicion | None = None
    moves: Sequence[WorkloadMove] = ()
    # Whether a healthy region has a budget that was not asked for yet.
    is_undrawn: bool = False
    # Whether the region itself takes work by now.
    is_open: bool = False
    round: RecoveryRound = field(default_factory=RecoveryRound)

    @property
    def is_movable(self) -> bool:
        """Whether slots may be handed over: the region obeys the fence, or its lease has lapsed."""
        at = self.recovery.movable_at
        return at is not None and at <= self.now

    def was_taken(self, *steps: RecoveryStep) -> bool:
        return not set(steps).isdisjoint(self.round.taken)


@dataclass(frozen=True)
class ConfirmSuspected:
    """The suspicion has lasted: by policy, the region is lost."""

    name: ClassVar = RecoveryStep.EVIDENCE
    reason: str


@dataclass(frozen=True)
class DismissSuspected:
    """The suspicion has passed: nothing was changed."""

    name: ClassVar = RecoveryStep.EVIDENCE
    reason: str


@dataclass(frozen=True)
class FenceRegion:
    """From here on nothing of the old epoch changes anything; asked again until that is sure."""

    name: ClassVar = RecoveryStep.FENCE


@dataclass(frozen=True)
class DrawBudgets:
    """Open the recovery budgets of healthy regions."""

    name: ClassVar = RecoveryStep.DRAW


@dataclass(frozen=True)
class MoveOut:
    """Move the next few workloads; with those that were refused a place, if that is wanted."""

    name: ClassVar = RecoveryStep.MOVE_OUT
    with_refused: bool = False


@dataclass(frozen=True)
class MeasureMoves:
    """Everything is on its way: read how far it has come."""

    name: ClassVar = RecoveryStep.MEASURE


@dataclass(frozen=True)
class BeginHolding:
    """Everything that could be moved was."""

    name: ClassVar = RecoveryStep.HOLD


@dataclass(frozen=True)
class HoldOn:
    """Measure on, try again what found no place, and see whether the region is back."""

    name: ClassVar = RecoveryStep.HOLD


@dataclass(frozen=True)
class OrderFailback:
    """The region has been well for long enough: by policy, its work goes back."""

    name: ClassVar = RecoveryStep.HOLD
    reason: str


@dataclass(frozen=True)
class OpenRegion:
    """Let the region take work again."""

    name: ClassVar = RecoveryStep.OPEN


@dataclass(frozen=True)
class MoveBack:
    """Give the region the next few of what came from it."""

    name: ClassVar = RecoveryStep.MOVE_BACK


@dataclass(frozen=True)
class CloseRecovery:
    """Release the budgets, check that nothing is left behind, and end."""

    name: ClassVar = RecoveryStep.CLOSE
    phase: RecoveryPhase
    reason: str


RecoveryAction = (
    ConfirmSuspected | DismissSuspected | FenceRegion | DrawBudgets | MoveOut | MeasureMoves
    | BeginHolding | HoldOn | OrderFailback | OpenRegion | MoveBack | CloseRecovery
)  # fmt: skip
NextStep = RecoveryAction | Rest


def next_step(observed: ObservedRecovery) -> NextStep:
    """What comes next; asked again after each step, whichever worker took it."""
    phase = observed.recovery.phase
    match phase:
        case RecoveryPhase.SUSPECTED:
            return _suspected(observed)
        case RecoveryPhase.CONFIRMED:
            return FenceRegion()
        case RecoveryPhase.MOVING:
            return _superseded(observed, "a later loss follows it") or _moving(observed)
        case RecoveryPhase.HOLDING:
            return _superseded(observed, "a later loss follows it") or _holding(observed)
        case RecoveryPhase.FAILING_BACK:
            return _superseded(observed, "it was lost again") or _failing_back(observed)
        case RecoveryPhase.SETTLING:
            return _superseded(observed, "a later loss follows it") or _settling(observed)
        case (
            RecoveryPhase.FAILED_BACK
            | RecoveryPhase.SETTLED
            | RecoveryPhase.VETOED
            | RecoveryPhase.DISMISSED
            | RecoveryPhase.SUPERSEDED
        ):
            return Rest("", is_final=True)
    assert_never(phase)


def _suspected(observed: ObservedRecovery) -> NextStep:
    region, now, policy = observed.recovery.region, observed.now, observed.policy
    if observed.state is not RegionState.SUSPECTED:
        return DismissSuspected(f"{region} is not suspected any more")
    if policy.confirmation is not Mode.AUTOMATIC:
        return Rest("a person to confirm or veto it", now + LOOK_LATER)
    # Anyone may have started this workflow: only time tells a loss from a blip.
    suspicion = observed.suspicion
    if suspicion is None or suspicion.calm_since is not None:
        return Rest(f"{region} to stay well, or to fall silent again", now + LOOK_SOON)
    if not is_due(suspicion, now, suspicion.since, policy):
        grace = timedelta(seconds=grace_seconds(suspicion.verdict, policy))
        return Rest(f"the loss of {region} to last", suspicion.since + grace)
    return ConfirmSuspected(observed.recovery.reason)


def _superseded(observed: ObservedRecovery, reason: str) -> NextStep | None:
    if observed.epoch <= observed.recovery.epoch:
        return None
    return _close(observed, RecoveryPhase.SUPERSEDED, reason)


def _close(observed: ObservedRecovery, phase: RecoveryPhase, reason: str) -> NextStep:
    if observed.was_taken(RecoveryStep.CLOSE):
        return Rest(observed.round.open_budget, observed.now + LOOK_LATER)
    return CloseRecovery(phase, reason)


# ── while the region is fenced ──────────────────────────────────────────────────────────────────


def _moving(observed: ObservedRecovery) -> NextStep:
    now = observed.now
    if not observed.is_movable:
        if not observed.was_taken(RecoveryStep.FENCE):
            return FenceRegion()
        return _await_fence(observed.recovery, now)
    if observed.is_undrawn and not observed.was_taken(RecoveryStep.DRAW):
        return DrawBudgets()
    if not observed.was_taken(RecoveryStep.MOVE_OUT, RecoveryStep.MEASURE):
        is_left = any(move.moved_at is None and not move.waits for move in observed.moves)
        # Only the list of what is affected says that nothing is; it is read by moving.
        return MoveOut() if is_left or not observed.moves else MeasureMoves()
    if all(is_settled(move, now) for move in observed.moves):
        return BeginHolding()
    waiting = sum(1 for move in observed.moves if move.moved_at is None)
    why = f"{waiting} more to be moved" if waiting else "moved replicas to find a node"
    return Rest(why, now + LOOK_SOON)


def _await_fence(recovery: Recovery, now: datetime) -> Rest:
    """Of a fenced region whose database was just asked, and did not answer."""
    region, at = recovery.region, recovery.movable_at
    if at is None:
        why = f"the database of {region} to answer: the region has no lease that could lapse"
        return Rest(why, now + LOOK_LATER)
    why = f"the lease of {region} to lapse: its database does not answer"
    return Rest(why, min(at, now + LOOK_LATER))


def _holding(observed: ObservedRecovery) -> NextStep:
    """Waits for the region, and for a person who says what is to be done."""
    recovery, policy, now = observed.recovery, observed.policy, observed.now
    # What was kept, or came back, only after everything else had been moved.
    is_whole = all(move.whole_at is not None for move in observed.moves)
    if observed.is_undrawn and not is_whole and not observed.was_taken(RecoveryStep.DRAW):
        return DrawBudgets()
    if not observed.was_taken(RecoveryStep.HOLD):
        return HoldOn()
    back = recovery.back_since
    if back is not None and policy.failback is Mode.AUTOMATIC:
        calm = timedelta(seconds=policy.calm_seconds)
        if now - back >= calm:
            return OrderFailback(f"{recovery.region} is well since {back:%H:%M:%S}Z")
        return Rest(f"{recovery.region} to stay well", back + calm)
    is_busy = any(move.moved_at is not None and move.whole_at is None for move in observed.moves)
    why = "it is back: send failback or settle" if back else f"{recovery.region} to come back"
    return Rest(why, now + (LOOK_SOON if is_busy else LOOK_LATER))


# ── the way back ────────────────────────────────────────────────────────────────────────────────


def _failing_back(observed: ObservedRecovery) -> NextStep:
    recovery, now = observed.recovery, observed.now
    if not observed.is_open and not observed.was_taken(RecoveryStep.OPEN):
        return OpenRegion()
    if observed.round.closed:
        return _go_on_moving(observed)
    if not observed.was_taken(RecoveryStep.MOVE_BACK):
        return MoveBack()
    if recovery.back_since is None:
        return Rest(f"the nodes of {recovery.region} to register again", now + LOOK_SOON)
    returns = observed.round.returns
    if returns.count and not is_given_up(recovery, returns.last_at, now):
        return Rest(f"what goes back to serve there: {returns.left[0]}", now + LOOK_SOON)
    reason = f"work is back in {recovery.region}"
    if returns.count:
        reason = f"{returns.count} workloads are not back in {recovery.region}"
    elif returns.strays:
        reason = f"{returns.strays} workloads are only partly back in {recovery.region}"
    return _close(observed, RecoveryPhase.FAILED_BACK, reason)


def _go_on_moving(observed: ObservedRecovery) -> NextStep:
    """Ordered back before its region answers: until then, work is moved out as before."""
    rest = Rest(observed.round.closed, observed.round.closed_until)
    if observed.state is not RegionState.FENCED:
        return rest
    if not observed.is_movable:
        return rest if observed.was_taken(RecoveryStep.FENCE) else FenceRegion()
    if observed.is_undrawn and not observed.was_taken(RecoveryStep.DRAW):
        return DrawBudgets()
    if not observed.was_taken(RecoveryStep.MOVE_OUT):
        return MoveOut(with_refused=True)
    is_busy = not all(is_settled(move, observed.now) for move in observed.moves)
    return Rest(rest.why, observed.now + LOOK_SOON) if is_busy else rest


def is_given_up(recovery: Recovery, returned_at: datetime | None, now: datetime) -> bool:
    """Whether what goes back was waited for long enough since it last made progress."""
    moments = (recovery.changed_at, recovery.back_since, returned_at)
    return now - max(at for at in moments if at is not None) >= FAILBACK_PATIENCE


def _settling(observed: ObservedRecovery) -> NextStep:
    """What was moved stays; the region takes new work once it answers."""
    if not observed.was_taken(RecoveryStep.OPEN):
        return OpenRegion()
    if observed.round.closed:
        return Rest(observed.round.closed, observed.round.closed_until)
    return _close(observed, RecoveryPhase.SETTLED, "work stays where it was moved to")
