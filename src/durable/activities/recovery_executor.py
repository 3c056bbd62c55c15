"""Takes the steps of a recovery: what it reads of the authority, and what each step does there.

Which step comes next is decided by `next_step`; whoever takes one again goes on where the last one
stopped.
"""

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from durable.activities.recovery_budgets import RecoveryBudgets
from durable.activities.recovery_moves import RecoveryMoves
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.policies import read_recovery_policy
from durable.authority.fleet.regions import read_region
from durable.authority.recovery.fence import fence, reopen
from durable.authority.recovery.moves import list_affected
from durable.authority.recovery.recoveries import (
    begin_suspected,
    note,
    reach_phase,
    read_moves,
    take_order,
)
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.serving import read_presence
from durable.authority.recovery.suspicions import suspicion_of
from durable.failpoints import Failpoint, reach
from durable.model.fleet.region_life import Fence
from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.recoveries import (
    UNFENCED,
    Recovery,
    RecoveryKey,
    RecoveryOrderKind,
    RecoveryPhase,
    RecoveryProgress,
)
from durable.model.recovery.steps import (
    RecoveryRound,
    RecoveryStep,
    RecoveryStepInput,
    RecoveryStepOutcome,
    Returns,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from durable.model.time_left import TimeLeft
from durable.planners.recovery.moves import most_telling, report_on
from durable.planners.recovery.steps import (
    LOOK_LATER,
    LOOK_SOON,
    BeginHolding,
    CloseRecovery,
    ConfirmSuspected,
    DismissSuspected,
    DrawBudgets,
    FenceRegion,
    HoldOn,
    MeasureMoves,
    MoveBack,
    MoveOut,
    ObservedRecovery,
    OpenRegion,
    OrderFailback,
    RecoveryAction,
    next_step,
)
from durable.planners.rest import Rest
from durable.signals.names import RECOVERY_CONTROLLER
from durable.signals.payloads import controllers_request
from durable.signals.sending import SignalSender
from durable.validation.text import shorten

ACTOR = RECOVERY_CONTROLLER
# From which part of its nodes on a region counts as back.
BACK_FROM = 0.5


class RecoveryExecutor:
    """Drives recoveries; all that it knows is what the authority says."""

    def __init__(self, databases: Databases, sender: SignalSender) -> None:
        self._databases = databases
        self._budgets = RecoveryBudgets(databases)
        self._moves = RecoveryMoves(databases, sender)

    async def take(self, step: RecoveryStep, given: RecoveryStepInput) -> RecoveryStepOutcome:
        """Takes the step if it is the next one, and answers which comes then.

        One that is not the next one any more does nothing.
        """
        observed = await self._observe(given.key, given.round)
        if observed is None:
            return RecoveryStepOutcome()
        decided = next_step(observed)
        if not isinstance(decided, Rest) and decided.name is step:
            observed = await self._execute(observed, decided)
            decided = next_step(observed)
        if not isinstance(decided, Rest):
            return RecoveryStepOutcome(next=decided.name, round=observed.round)
        after = next_step(replace(observed, round=RecoveryRound()))
        return RecoveryStepOutcome(
            next=RecoveryStep.EVIDENCE if isinstance(after, Rest) else after.name,
            progress=await self._progress(observed, decided),
        )

    async def _observe(self, key: RecoveryKey, round: RecoveryRound) -> ObservedRecovery | None:
        recovery = await begin_suspected(self._databases, key, actor=ACTOR)
        if recovery is None:
            return None
        fact = await read_fact(self._databases, key.region)
        is_fenced = recovery.phase not in UNFENCED
        observed = ObservedRecovery(
            recovery=recovery,
            policy=await read_recovery_policy(self._databases),
            now=await read_time(self._databases),
            state=fact.state,
            epoch=fact.epoch,
            suspicion=suspicion_of(fact),
            moves=await read_moves(self._databases, key) if is_fenced else (),
            is_open=await self._is_open(recovery, fact.state),
            round=round,
        )
        if observed.was_taken(RecoveryStep.DRAW) or not _draws(observed):
            return observed
        return replace(observed, is_undrawn=await self._budgets.is_undrawn(recovery))

    async def _is_open(self, recovery: Recovery, state: RegionState) -> bool:
        """Its copy may be behind: whoever opened it died before the region heard of it."""
        if recovery.phase is not RecoveryPhase.FAILING_BACK or state is RegionState.FENCED:
            return False
        try:
            copy = await read_region(self._databases, recovery.region)
        except AuthorityError:
            return False
        return copy.state is not RegionState.FENCED

    async def _progress(self, observed: ObservedRecovery, rest: Rest) -> RecoveryProgress:
        recovery, policy = observed.recovery, observed.policy
        moves = observed.moves or await read_moves(self._databases, recovery.key)
        now = await read_time(self._databases)
        return RecoveryProgress(
            recovery=recovery,
            report=report_on(recovery, moves, policy, now),
            moves=tuple(most_telling(moves, policy)),
            waits_for=rest.why,
            look_in=rest.until and TimeLeft.of(rest.until, now),
        )

    async def _execute(self, observed: ObservedRecovery, step: RecoveryAction) -> ObservedRecovery:
        """What is known after the step; at another phase, everything may be done again."""
        after = replace(observed, round=observed.round.after(step.name))
        after = await self._take(after, step)
        if after.recovery.phase is not observed.recovery.phase:
            return await self._observe(after.recovery.key, RecoveryRound()) or after
        return replace(after, now=await read_time(self._databases))

    async def _take(self, observed: ObservedRecovery, step: RecoveryAction) -> ObservedRecovery:
        recovery = observed.recovery
        match step:
            case ConfirmSuspected(reason):
                recovery = await self._order(recovery, RecoveryOrderKind.CONFIRM, reason)
            case DismissSuspected(reason):
                recovery = await self._reach(recovery, RecoveryPhase.DISMISSED, reason)
            case FenceRegion():
                return await self._fence_region(observed)
            case DrawBudgets():
                recovery = await self._budgets.draw(recovery)
            case MoveOut(with_refused):
                return await self._move_out(observed, with_refused=with_refused)
            case MeasureMoves():
                return await self._move_out(observed, with_refused=False)
            case BeginHolding():
                why = "everything was moved"
                recovery = await self._reach(recovery, RecoveryPhase.HOLDING, why)
            case HoldOn():
                observed = await self._move_out(observed, with_refused=True)
                recovery = await self._note_presence(observed.recovery, observed.now)
            case OrderFailback(reason):
                recovery = await self._order(recovery, RecoveryOrderKind.FAILBACK, reason)
            case OpenRegion():
                return await self._open(observed)
            case MoveBack():
                return await self._move_back(observed)
            case CloseRecovery():
                return await self._close(observed, step)
            case _:
                assert_never(step)
        return replace(observed, recovery=recovery)

    # ── out of the region ───────────────────────────────────────────────────────────────────────

    async def _fence_region(self, observed: ObservedRecovery) -> ObservedRecovery:
        recovery, now = observed.recovery, observed.now
        if recovery.phase is RecoveryPhase.CONFIRMED:
            return replace(observed, recovery=await self._begin_moving(recovery, now))
        # Its database may answer by now, and then nothing has to wait for its lease.
        fenced = await self._fence(recovery)
        if fenced.movable_at != recovery.movable_at:
            recovery = recovery.model_copy(update={"movable_at": fenced.movable_at})
            await note(self._databases, recovery)
        after = replace(observed, recovery=recovery, now=await read_time(self._databases))
        if after.is_movable:
            return replace(after, is_undrawn=await self._budgets.is_undrawn(recovery))
        return replace(after, moves=await self._moves.measure(recovery, observed.policy))

    async def _begin_moving(self, recovery: Recovery, now: datetime) -> Recovery:
        try:
            fenced = await self._fence(recovery)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.FENCED_WRITER:
                raise
            return await self._reach(recovery, RecoveryPhase.SUPERSEDED, error.refusal.sentence)
        reach(Failpoint.AFTER_FENCE)
        await list_affected(self._databases, recovery.key)
        return await reach_phase(
            self._databases,
            recovery,
            RecoveryPhase.MOVING,
            actor=ACTOR,
            reason=recovery.reason,
            fenced_at=now,
            movable_at=fenced.movable_at,
        )

    async def _fence(self, recovery: Recovery) -> Fence:
        return await fence(
            self._databases,
            recovery.region,
            expected_epoch=recovery.epoch - 1,
            actor=recovery.actor,
            reason=recovery.reason,
            evidence=recovery.evidence,
        )

    async def _move_out(
        self, observed: ObservedRecovery, *, with_refused: bool
    ) -> ObservedRecovery:
        recovery = observed.recovery
        is_whole = all(move.whole_at is not None for move in observed.moves)
        if not is_whole and any(draw.refused for draw in recovery.draws):
            # What held it may have ended by now.
            recovery = await self._budgets.draw(recovery)
        moves = await self._moves.move_out(
            recovery, observed.policy, observed.now, with_refused=with_refused
        )
        return replace(observed, recovery=recovery, moves=moves)

    # ── the way back ────────────────────────────────────────────────────────────────────────────

    async def _note_presence(self, recovery: Recovery, now: datetime) -> Recovery:
        """Since when enough of the region's nodes live; from the start if it came and went."""
        try:
            presence = await read_presence(self._databases, recovery.region)
            is_back = presence.live > 0 and presence.live >= BACK_FROM * presence.nodes
        except AuthorityError:
            is_back = False
        since = (recovery.back_since or now) if is_back else None
        if since == recovery.back_since:
            return recovery
        recovery = recovery.model_copy(update={"back_since": since})
        await note(self._databases, recovery)
        return recovery

    async def _open(self, observed: ObservedRecovery) -> ObservedRecovery:
        recovery, now = observed.recovery, observed.now
        if recovery.phase is RecoveryPhase.SETTLING:
            await self._end_draws(recovery)
            await self._moves.hint_at_stand_ins(recovery)
        else:
            recovery = await self._note_presence(recovery, now)
            observed = replace(observed, recovery=recovery)
            # An open region gives up what silent nodes run: originals wait for theirs behind it.
            if recovery.back_since is None and await self._moves.keeps_originals(recovery):
                why = f"the nodes of {recovery.region} to register again"
                return _closed(observed, why, now + LOOK_SOON)
        try:
            fact = await read_fact(self._databases, recovery.region)
            copy = await read_region(self._databases, recovery.region)
            if fact.is_fenced or copy.state is RegionState.FENCED:
                await self._moves.release(recovery)
            await reopen(
                self._databases,
                recovery.region,
                expected_epoch=recovery.epoch,
                actor=recovery.actor,
                reason=recovery.reason,
            )
        except AuthorityError as error:
            return _closed(observed, f"{recovery.region} to answer: {error}", now + LOOK_LATER)
        except RefusedError as error:
            return _closed(observed, error.refusal.sentence, now + LOOK_SOON)
        reach(Failpoint.AFTER_REOPEN)
        return observed

    async def _move_back(self, observed: ObservedRecovery) -> ObservedRecovery:
        recovery = await self._note_presence(observed.recovery, observed.now)
        observed = replace(observed, recovery=recovery)
        if recovery.back_since is None:
            return observed
        returns = await self._moves.move_back(recovery, observed.policy, observed.now)
        return replace(observed, round=observed.round.model_copy(update={"returns": returns}))

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    async def _close(self, observed: ObservedRecovery, step: CloseRecovery) -> ObservedRecovery:
        recovery = observed.recovery
        await self._end_draws(recovery)
        still_open = await self._budgets.find_open(recovery)
        if still_open:
            kept = observed.round.model_copy(update={"open_budget": shorten(still_open[0])})
            return replace(observed, round=kept)
        back = step.phase is RecoveryPhase.FAILED_BACK
        returns = observed.round.returns if back else Returns()
        findings = [*returns.left, *returns.strayed, *await self._budgets.find_leftovers(recovery)]
        ended = await reach_phase(
            self._databases,
            recovery,
            step.phase,
            actor=ACTOR,
            reason=step.reason,
            findings=findings[:50],
        )
        return replace(observed, recovery=ended)

    async def _end_draws(self, recovery: Recovery) -> None:
        await self._budgets.close(recovery)
        await self._moves.end_incident(recovery)

    async def _reach(self, recovery: Recovery, phase: RecoveryPhase, reason: str) -> Recovery:
        return await reach_phase(self._databases, recovery, phase, actor=ACTOR, reason=reason)

    async def _order(self, recovery: Recovery, kind: RecoveryOrderKind, reason: str) -> Recovery:
        """What the policy has done without a person, once per loss.

        No person's request id has a space in it, so none can use up this one.
        """
        message = OperatorMessage.unsigned(
            str(recovery.key),
            kind,
            actor=ACTOR,
            reason=shorten(reason),
            request_id=controllers_request(kind, recovery.key, recovery.changed_at.isoformat()),
        )
        phase = recovery.phase
        taken = await take_order(self._databases, message, by_policy=True, at_phase=phase)
        return taken.target


def _closed(observed: ObservedRecovery, why: str, until: datetime) -> ObservedRecovery:
    return replace(observed, round=observed.round.found_closed(why, until))


def _draws(observed: ObservedRecovery) -> bool:
    """Whether something may be moved now, which draws on the budgets of other regions."""
    match observed.recovery.phase:
        case RecoveryPhase.HOLDING:
            return True
        case RecoveryPhase.MOVING:
            return observed.is_movable
        case RecoveryPhase.FAILING_BACK:
            return observed.is_movable and observed.state is RegionState.FENCED
        case _:
            return False
