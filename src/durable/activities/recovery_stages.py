"""What a recovery does in each of its stages, from the loss to the end of it.

A stage is a function of what the authority knows. It changes something or says what it waits for,
and whoever runs it again goes on where the last one stopped.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from durable.activities.recovery_budgets import RecoveryBudgets
from durable.activities.recovery_moves import RecoveryMoves, Returns
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
    reach_stage,
    read_moves,
    take_order,
)
from durable.authority.recovery.region_facts import read_fact
from durable.authority.recovery.serving import read_presence
from durable.authority.recovery.suspicions import suspicion_of
from durable.failpoints import Failpoint, reach
from durable.model.fleet.region_life import Fence, RegionFact
from durable.model.recovery.detection import Mode, RecoveryPolicy
from durable.model.recovery.recoveries import (
    Recovery,
    RecoveryKey,
    RecoveryOrder,
    RecoveryOrderKind,
    RecoveryProgress,
    RecoveryStage,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from durable.planners.recovery.detection import grace_seconds, is_due
from durable.planners.recovery.moves import is_settled, most_telling, report_on
from durable.signals.names import RECOVERY_CONTROLLER
from durable.signals.payloads import controllers_request
from durable.signals.sending import SignalSender

ACTOR = RECOVERY_CONTROLLER
# A stage may lead to the next at once, but not for ever.
STAGES_AT_ONCE = 4
LOOK_SOON, LOOK_LATER = timedelta(seconds=1), timedelta(seconds=10)
# From which part of its nodes on a region counts as back.
BACK_FROM = 0.5
# What was given back is waited for so long; then the recovery ends, and says what is not there.
FAILBACK_PATIENCE = timedelta(minutes=15)


@dataclass(frozen=True)
class Rest:
    """Nothing to do now: what is waited for, and when it is worth looking again."""

    why: str
    until: datetime | None = None


def await_fence(recovery: Recovery, now: datetime) -> Rest:
    """Of a fenced region whose database was just asked, and did not answer."""
    region, at = recovery.region, recovery.movable_at
    if at is None:
        why = f"the database of {region} to answer: the region has no lease that could lapse"
        return Rest(why, now + LOOK_LATER)
    why = f"the lease of {region} to lapse: its database does not answer"
    return Rest(why, min(at, now + LOOK_LATER))


def await_grace(fact: RegionFact, policy: RecoveryPolicy, now: datetime) -> Rest | None:
    """Of a suspected region; None once its suspicion has lasted long enough."""
    suspicion = suspicion_of(fact)
    if suspicion is None or suspicion.calm_since is not None:
        return Rest(f"{fact.region} to stay well, or to fall silent again", now + LOOK_SOON)
    if is_due(suspicion, now, suspicion.since, policy):
        return None
    grace = timedelta(seconds=grace_seconds(suspicion.verdict, policy))
    return Rest(f"the loss of {fact.region} to last", suspicion.since + grace)


def is_given_up(recovery: Recovery, back: Returns, now: datetime) -> bool:
    """Whether what goes back was waited for long enough; anew after progress."""
    moments = (recovery.changed_at, recovery.back_since, back.last_at)
    last = max(one for one in moments if one is not None)
    return now - last >= FAILBACK_PATIENCE


Outcome = Recovery | Rest
Stage = Callable[[Recovery, RecoveryPolicy, datetime], Awaitable[Outcome]]


class RecoveryStages:
    """Drives recoveries; all that it knows is what the authority says."""

    def __init__(self, databases: Databases, sender: SignalSender) -> None:
        self._databases = databases
        self._budgets = RecoveryBudgets(databases)
        self._moves = RecoveryMoves(databases, sender)
        self._stages: Mapping[RecoveryStage, Stage] = {
            RecoveryStage.SUSPECTED: self._suspected,
            RecoveryStage.CONFIRMED: self._confirmed,
            RecoveryStage.MOVING: self._moving,
            RecoveryStage.HOLDING: self._holding,
            RecoveryStage.FAILING_BACK: self._failing_back,
            RecoveryStage.SETTLING: self._settling,
        }

    async def advance(self, key: RecoveryKey) -> RecoveryProgress | None:
        """Takes every step that can be taken now, and answers where that leads."""
        recovery = await begin_suspected(self._databases, key, actor=ACTOR)
        if recovery is None:
            return None
        policy = await read_recovery_policy(self._databases)
        rest = Rest("the next step")
        for _ in range(STAGES_AT_ONCE):
            stage = self._stages.get(recovery.stage)
            if stage is None:
                rest = Rest("")
                break
            outcome = await stage(recovery, policy, await read_time(self._databases))
            if isinstance(outcome, Rest):
                rest = outcome
                break
            recovery = outcome
        return await self._progress(recovery, policy, rest)

    async def _progress(
        self, recovery: Recovery, policy: RecoveryPolicy, rest: Rest
    ) -> RecoveryProgress:
        moves = await read_moves(self._databases, recovery.key)
        now = await read_time(self._databases)
        return RecoveryProgress(
            recovery=recovery,
            report=report_on(recovery, moves, policy, now),
            moves=tuple(most_telling(moves, policy)),
            waits_for=rest.why,
            look_at=rest.until,
        )

    # ── before anything was changed ─────────────────────────────────────────────────────────────

    async def _suspected(
        self, recovery: Recovery, policy: RecoveryPolicy, now: datetime
    ) -> Outcome:
        fact = await read_fact(self._databases, recovery.region)
        if fact.state is not RegionState.SUSPECTED:
            why = f"{recovery.region} is not suspected any more"
            return await self._reach(recovery, RecoveryStage.DISMISSED, why)
        if policy.confirmation is not Mode.AUTOMATIC:
            return Rest("somebody to confirm or veto it", now + LOOK_LATER)
        # Anybody may have started this workflow: only time tells a loss from a blip.
        early = await_grace(fact, policy, now)
        if early is not None:
            return early
        return await self._order(recovery, RecoveryOrderKind.CONFIRM, recovery.reason)

    async def _confirmed(
        self, recovery: Recovery, policy: RecoveryPolicy, now: datetime
    ) -> Outcome:
        """Fences the region: from here on nothing of the old epoch changes anything."""
        try:
            fenced = await self._fence(recovery)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.FENCED_WRITER:
                raise
            return await self._reach(recovery, RecoveryStage.SUPERSEDED, error.refusal.sentence)
        reach(Failpoint.AFTER_FENCE)
        await list_affected(self._databases, recovery.key)
        return await reach_stage(
            self._databases,
            recovery,
            RecoveryStage.MOVING,
            actor=ACTOR,
            reason=recovery.reason,
            fenced_at=now,
            movable_at=fenced.movable_at,
        )

    # ── while the region is fenced ──────────────────────────────────────────────────────────────

    async def _moving(self, recovery: Recovery, policy: RecoveryPolicy, now: datetime) -> Outcome:
        if await self._is_superseded(recovery):
            return await self._end(recovery, RecoveryStage.SUPERSEDED, "a later loss follows it")
        recovery = await self._wait_for_fence(recovery)
        now = await read_time(self._databases)
        if recovery.movable_at is None or recovery.movable_at > now:
            await self._moves.measure(recovery, policy)
            return await_fence(recovery, now)
        recovery = await self._budgets.draw(recovery)
        moves = await self._moves.move_out(recovery, policy, now)
        if all(is_settled(move, now) for move in moves):
            return await self._reach(recovery, RecoveryStage.HOLDING, "everything was moved")
        waiting = sum(1 for move in moves if move.moved_at is None)
        why = f"{waiting} more to be moved" if waiting else "moved replicas to find a node"
        return Rest(why, now + LOOK_SOON)

    async def _holding(self, recovery: Recovery, policy: RecoveryPolicy, now: datetime) -> Outcome:
        """Measures on, and waits for the region and for somebody who says what is to be done."""
        if await self._is_superseded(recovery):
            return await self._end(recovery, RecoveryStage.SUPERSEDED, "a later loss follows it")
        if any(one.whole_at is None for one in await read_moves(self._databases, recovery.key)):
            # What was kept, or came back, only after everything else had been moved.
            recovery = await self._budgets.draw(recovery)
        moves = await self._moves.move_out(recovery, policy, now, with_refused=True)
        recovery = await self._note_presence(recovery, now)
        back = recovery.back_since
        if back is not None and policy.failback is Mode.AUTOMATIC:
            calm = timedelta(seconds=policy.calm_seconds)
            if now - back >= calm:
                why = f"{recovery.region} is well since {back:%H:%M:%S}Z"
                return await self._order(recovery, RecoveryOrderKind.FAILBACK, why)
            return Rest(f"{recovery.region} to stay well", back + calm)
        is_busy = any(move.moved_at is not None and move.whole_at is None for move in moves)
        why = "it is back: send failback or settle" if back else f"{recovery.region} to come back"
        return Rest(why, now + (LOOK_SOON if is_busy else LOOK_LATER))

    # ── the way back ────────────────────────────────────────────────────────────────────────────

    async def _failing_back(
        self, recovery: Recovery, policy: RecoveryPolicy, now: datetime
    ) -> Outcome:
        if await self._is_superseded(recovery):
            return await self._end(recovery, RecoveryStage.SUPERSEDED, "it was lost again")
        recovery = await self._note_presence(recovery, now)
        nodes = Rest(f"the nodes of {recovery.region} to register again", now + LOOK_SOON)
        # An open region gives up what silent nodes run, so originals wait for theirs behind it.
        is_early = recovery.back_since is None and await self._moves.keeps_originals(recovery)
        closed = nodes if is_early else await self._open_region(recovery, now)
        if closed is not None:
            is_busy = await self._go_on_moving(recovery, policy)
            return Rest(closed.why, now + LOOK_SOON) if is_busy else closed
        if recovery.back_since is None:
            return nodes
        back = await self._moves.move_back(recovery, policy, now)
        if back.left and not is_given_up(recovery, back, now):
            return Rest(f"what goes back to serve there: {back.left[0]}", now + LOOK_SOON)
        why = f"work is back in {recovery.region}"
        if back.left:
            why = f"{len(back.left)} workloads are not back in {recovery.region}"
        return await self._end(recovery, RecoveryStage.FAILED_BACK, why, back.left)

    async def _go_on_moving(self, recovery: Recovery, policy: RecoveryPolicy) -> bool:
        """Ordered back before its region answers: until then, work is moved out as before.

        Whether more is to be moved soon.
        """
        if not (await read_fact(self._databases, recovery.region)).is_fenced:
            return False
        recovery = await self._wait_for_fence(recovery)
        now = await read_time(self._databases)
        if recovery.movable_at is None or recovery.movable_at > now:
            return False
        recovery = await self._budgets.draw(recovery)
        moves = await self._moves.move_out(recovery, policy, now, with_refused=True)
        return not all(is_settled(move, now) for move in moves)

    async def _settling(self, recovery: Recovery, policy: RecoveryPolicy, now: datetime) -> Outcome:
        """What was moved stays; the region takes new work once it answers."""
        if await self._is_superseded(recovery):
            return await self._end(recovery, RecoveryStage.SUPERSEDED, "a later loss follows it")
        await self._end_draws(recovery)
        await self._moves.hint_at_stand_ins(recovery)
        closed = await self._open_region(recovery, now)
        if closed is not None:
            return closed
        return await self._end(recovery, RecoveryStage.SETTLED, "work stays where it was moved to")

    async def _open_region(self, recovery: Recovery, now: datetime) -> Rest | None:
        """None once the region takes work again."""
        try:
            fact = await read_fact(self._databases, recovery.region)
            # Its copy may be behind: whoever opened it died before the region heard of it.
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
            return Rest(f"{recovery.region} to answer: {error}"[:500], now + LOOK_LATER)
        except RefusedError as error:
            return Rest(error.refusal.sentence, now + LOOK_SOON)
        reach(Failpoint.AFTER_REOPEN)
        return None

    # ── what stages share ───────────────────────────────────────────────────────────────────────

    async def _is_superseded(self, recovery: Recovery) -> bool:
        fact = await read_fact(self._databases, recovery.region)
        return fact.epoch > recovery.epoch

    async def _fence(self, recovery: Recovery) -> Fence:
        return await fence(
            self._databases,
            recovery.region,
            expected_epoch=recovery.epoch - 1,
            actor=recovery.actor,
            reason=recovery.reason,
            evidence=recovery.evidence,
        )

    async def _wait_for_fence(self, recovery: Recovery) -> Recovery:
        """Asks again whether the region's database answers, while its lease has not lapsed."""
        now = await read_time(self._databases)
        if recovery.movable_at is not None and recovery.movable_at <= now:
            return recovery
        fenced = await self._fence(recovery)
        if fenced.movable_at == recovery.movable_at:
            return recovery
        recovery = recovery.model_copy(update={"movable_at": fenced.movable_at})
        await note(self._databases, recovery)
        return recovery

    async def _note_presence(self, recovery: Recovery, now: datetime) -> Recovery:
        """Since when enough of the region's nodes live; one that comes and goes begins anew."""
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

    async def _order(self, recovery: Recovery, kind: RecoveryOrderKind, reason: str) -> Recovery:
        """What the policy has done without a person, once per loss.

        No person's request id has a space in it, so nobody can use up this one.
        """
        order = RecoveryOrder(
            key=recovery.key,
            kind=kind,
            request=controllers_request(kind, recovery.key, recovery.changed_at.isoformat()),
            actor=ACTOR,
            reason=reason[:500],
        )
        return await take_order(self._databases, order, asked=None, at_stage=recovery.stage)

    async def _end_draws(self, recovery: Recovery) -> None:
        await self._budgets.close(recovery)
        await self._moves.end_incident(recovery)

    async def _reach(self, recovery: Recovery, stage: RecoveryStage, reason: str) -> Recovery:
        return await reach_stage(self._databases, recovery, stage, actor=ACTOR, reason=reason)

    async def _end(
        self, recovery: Recovery, stage: RecoveryStage, reason: str, left: Sequence[str] = ()
    ) -> Outcome:
        """Releases the budgets, checks that nothing is left behind, and ends."""
        await self._end_draws(recovery)
        still_open = await self._budgets.find_open(recovery)
        if still_open:
            return Rest(still_open[0][:500], await read_time(self._databases) + LOOK_LATER)
        findings = [*left, *await self._budgets.find_leftovers(recovery)]
        return await reach_stage(
            self._databases, recovery, stage, actor=ACTOR, reason=reason, findings=findings[:50]
        )
