"""What a placement does with each message; they are read one by one, between two steps."""

from collections.abc import Iterable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.model.phases import SlotPhase
    from durable.model.refusal import RefusalCode
    from durable.model.request import PlacementHold
    from durable.signals import payloads
    from durable.signals.names import WORKLOAD_CONTROLLER
    from durable.signals.registry import Message
    from durable.signals.status import PlacementStatus
    from durable.workflows.failures import refusal
    from durable.workflows.inbox import Inbox
    from durable.workflows.placement.slots import Leave, SlotState
    from durable.workflows.placement.state import PlacementState


class PlacementMessages:
    """One method for each message in the registry; it changes the state and answers."""

    _inbox: Inbox
    _state: PlacementState

    @workflow.query(name="status", description="Where every slot is, why, and who acts next.")
    def status(self) -> PlacementStatus:
        return self._state.status()

    @workflow.signal(dynamic=True, description="The same messages as signals; none is dropped.")
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        self._inbox.receive_signal(name, args)

    @workflow.update(dynamic=True, description="Any other name is refused, and recorded.")
    async def on_unknown_update(self, name: str, args: Sequence[RawValue]) -> None:
        raise self._inbox.refuse_unknown(name, args)

    async def receive(self, message: Message, raw: RawValue) -> str:
        return await self._inbox.receive_update(message, raw)

    def _read_messages(self) -> None:
        while (envelope := self._inbox.next()) is not None:
            handle: Any = getattr(self, f"on_{envelope.message.name}")
            try:
                self._inbox.accept(envelope, handle(envelope.payload))
            except ApplicationError as refused:
                self._inbox.refuse(envelope, refused)

    # ── from people ─────────────────────────────────────────────────────────────────────────────

    def on_hold(self, hold: payloads.HoldPlacement) -> str:
        now = workflow.now()
        self._state.hold = PlacementHold(actor=hold.actor, reason=hold.reason, since=now)
        # A task that was lost may have started something, and nothing else will report it.
        self._read_claims_now()
        return "Held: nothing new is placed until somebody resumes."

    def on_resume(self, resume: payloads.ResumePlacement) -> str:
        held, self._state.hold = self._state.hold, None
        self._retry()
        if held is None:
            return "It was not held."
        return f"Resumed; it was held by {held.actor}: {held.reason}."

    def on_retry_now(self, retry: payloads.RetryPlacement) -> str:
        if self._state.hold is not None:
            return f"It is held by {self._state.hold}; nothing is placed until somebody resumes."
        if not self._state.slots.in_phase(SlotPhase.WAITING):
            return "Nothing waits for a node."
        self._retry()
        return "Looking for nodes now."

    def on_evict(self, evict: payloads.EvictSlots) -> str:
        slots = self._state.slots.by_number
        chosen = evict.slots or tuple(slots)
        unknown = sorted(set(chosen) - set(slots))
        if unknown:
            known = ", ".join(map(str, sorted(slots))) or "none"
            sentence = f"There is no slot {unknown[0]} here; slots: {known}."
            raise refusal(RefusalCode.UNKNOWN_SLOT, sentence)
        why = f"evicted by {evict.actor}: {evict.reason}"[:500]
        evicted = [slots[number] for number in chosen]
        evicted = [slot for slot in evicted if slot.token is not None and slot.leave is None]
        for slot in evicted:
            slot.leave, slot.evidence = Leave.AGAIN, why
        if not evicted:
            return "Nothing to stop: it waits for a node, or is being stopped already."
        each = "it is" if len(evicted) == 1 else "each is"
        again = "after a resume" if self._state.hold is not None else "once it has stopped"
        return f"Stopping {slot_numbers(evicted)}; {each} placed again {again}."

    # ── from controllers ────────────────────────────────────────────────────────────────────────

    def on_set_share(self, share: payloads.SetShare) -> str:
        state = self._state
        if share.revision <= state.revision or state.releasing is not None:
            return "There is a newer share."
        state.revision, state.spec = share.revision, share.spec
        if state.slots.resize(share.slots, workflow.now()):
            # A claim whose answer was lost is known to the authority alone.
            state.must_read_claims = True
        self._retry()
        return "Accepted."

    def on_release(self, release: payloads.ReleasePlacement) -> str:
        if release.actor != WORKLOAD_CONTROLLER:
            raise refusal(
                RefusalCode.WRONG_STATE,
                "Only its workload releases a placement: delete or scale the workload to stop "
                "slots for good, or send evict to have them placed again.",
            )
        self._state.releasing = release.reason
        self._read_claims_now()
        for slot in self._state.slots.by_number.values():
            slot.leave, slot.evidence = Leave.FOR_GOOD, release.reason
        return "Stopping every slot; the placement ends when nothing of it is left."

    def on_observed(self, observed: payloads.SlotsObserved) -> str:
        state = self._state
        state.must_read_claims |= state.slots.observe(observed, workflow.now(), state.spec)
        return "Observed."

    def on_wake(self, wake: payloads.Wake) -> str:
        self._retry()
        return "Looking for nodes now."

    def _retry(self) -> None:
        self._state.next_retry_at = None
        for slot in self._state.slots.in_phase(SlotPhase.WAITING):
            slot.retry_at = None

    def _read_claims_now(self) -> None:
        self._state.must_read_claims, self._state.read_claims_at = True, None


def slot_numbers(slots: Iterable[SlotState]) -> str:
    """A few of them, for a sentence."""
    numbers = [slot.slot for slot in slots]
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"slot{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:5]))}{more}"
