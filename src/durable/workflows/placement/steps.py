"""Taking the steps of a placement: what the authority answers for each slot, and what follows."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.placement import PlacementActivities
    from durable.activities.steps import Claim, ClaimsStep, StepResult
    from durable.model.placement.intents import ReleaseCause
    from durable.model.placement.pending import Pending
    from durable.model.placement.pending_reasons import PendingCode, Unreachable
    from durable.model.refusal import RefusalCode
    from durable.model.states import BindingState
    from durable.validation.text import shorten
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, fail_if_elsewhere, sentence_of
    from durable.workflows.placement.messages import PlacementMessages, slot_numbers
    from durable.workflows.placement.slots import Leave, PlacementSlots, SlotState
    from durable.workflows.steps import UNREACHABLE, run_step

T = TypeVar("T")

# The answer for more slots, with what was observed of each, may not fit into one payload.
MAX_SLOTS_PER_STEP = 1_000

_DECIDE_AGAIN = frozenset(
    {
        RefusalCode.STOP_REQUESTED,
        RefusalCode.NODE_CORDONED,
        RefusalCode.AVOIDED,
        RefusalCode.HELD,
        RefusalCode.DRAW_ENDED,
        RefusalCode.NODE_NOT_READY,
        RefusalCode.NODE_STALE,
    }
)


class PlacementSteps(PlacementMessages):
    """One idempotent local activity for many slots; the authority is believed about each."""

    _slots: PlacementSlots

    async def _free(
        self, slots: Sequence[SlotState], cause: ReleaseCause, *, unless_fenced: bool = False
    ) -> None:
        await self._take(
            PlacementActivities.release, slots, self._freed, cause, unless_fenced=unless_fenced
        )

    async def _take(
        self,
        activity: Callable[[Any, ClaimsStep], Awaitable[StepResult]],
        slots: Sequence[SlotState],
        done: Callable[[Claim, datetime], None],
        cause: ReleaseCause = ReleaseCause.WITHDRAWN,
        passing: tuple[BindingState, ...] = (),
        *,
        unless_fenced: bool = False,
    ) -> None:
        """Takes one step for these slots, and believes the authority about each of them."""
        verb = activity.__name__
        ends = verb in ("stop", "release")
        for part in in_parts(slots):
            step = ClaimsStep(
                key=self._state.key,
                claims=tuple(slot.claim for slot in part),
                why=f"{verb} the slot",
                reasons={s.slot: shorten(s.evidence) for s in part if s.evidence} if ends else {},
                cause=cause,
                forced=tuple(slot.slot for slot in part if slot.is_forced),
                passing=passing,
                unless_fenced=unless_fenced,
            )
            result = await self._step(activity, step, summary_of(verb, part))
            if result is UNREACHABLE:
                return
            self._believe(result, verb, done)

    def _believe(
        self, result: StepResult, verb: str, done: Callable[[Claim, datetime], None]
    ) -> None:
        for claim in result.done:
            done(claim, workflow.now())
        for refused in result.refused:
            slot = self._slots.by_number[refused.slot]
            slot.ordinal += 1
            if refused.refusal.code is RefusalCode.DISRUPTION_ALLOWANCE:
                slot.blocked = refused.refusal.sentence
            if slot.leave is None:  # otherwise why it leaves is what people want to know
                slot.evidence = refused.refusal.sentence
            self._refused(slot, refused.refusal.code, verb)
        if result.observed is not None:
            now, spec = workflow.now(), self._state.spec
            self._state.must_recall |= self._slots.observe(result.observed, now, spec)

    def _refused(self, slot: SlotState, code: RefusalCode, verb: str) -> None:
        state, now = self._state, workflow.now()
        if verb == "expire":
            slot.has_lapsed, slot.lease_expires_at = False, now + timeouts.CLAIMS_RETRY
        if code is RefusalCode.LEASE_EXPIRED:
            slot.has_lapsed = True
        elif code is RefusalCode.STILL_RUNNING:
            # Its node is back, or was never gone: wait for what it reports.
            slot.deadline = now + timeouts.UNKNOWN_TIMEOUT
        elif code is RefusalCode.REGION_FENCED and verb == "release":
            slot.deadline = now + timeouts.FENCED_RETRY
        elif code is RefusalCode.WRONG_STATE and verb == "bind":
            # Its lease ran out and it was freed: the claims say what is left.
            state.must_recall = True
        elif code in _DECIDE_AGAIN or verb == "bind":
            # Nothing of it was ever started: it is released, and its slot placed elsewhere.
            slot.leave = slot.leave or Leave.AGAIN
        elif code is not RefusalCode.LEASE_ACTIVE and not state.must_recall:
            # Once for all that is refused until then, or each refusal would put it off.
            state.must_recall, state.recall_at = True, now + timeouts.CLAIMS_RETRY

    async def _step(
        self, activity: Callable[[Any, Any], Awaitable[T]], argument: object, summary: str
    ) -> T:
        """One idempotent local activity; while the authority is away, a visible wait instead."""
        if self._state.is_cut_off:
            return UNREACHABLE  # one step of a pass has asked, which is enough
        try:
            answer = await run_step(activity, argument, summary)
        except STEP_FAILURES as error:
            fail_if_elsewhere(error)
            why = Unreachable(error=sentence_of(error))
            self._state.pending = Pending.because(PendingCode.AUTHORITY_UNREACHABLE, why)
            self._state.outages += 1
            wait = timeouts.outage_wait(self._state.outages) * workflow.random().uniform(1.0, 1.5)
            self._state.next_retry_at = workflow.now() + wait
            return UNREACHABLE
        self._state.outages = 0
        return answer

    def _freed(self, claim: Claim, now: datetime) -> None:
        self._slots.freed(claim.slot, now, self._state.spec)


def in_parts(slots: Sequence[SlotState]) -> Iterator[Sequence[SlotState]]:
    for first in range(0, len(slots), MAX_SLOTS_PER_STEP):
        yield slots[first : first + MAX_SLOTS_PER_STEP]


def summary_of(verb: str, slots: Sequence[SlotState]) -> str:
    return f"{verb} {slot_numbers(slots)}"
