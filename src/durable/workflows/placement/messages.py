"""What a placement does with each message; they are read one by one, between two steps."""

from collections.abc import Callable, Iterable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.model.operators.rights import Scope
    from durable.model.refusal import RefusalCode
    from durable.model.work.phases import SlotPhase
    from durable.signals import payloads
    from durable.signals.status import PlacementStatus
    from durable.validation.text import shorten
    from durable.workflows.authorization import recall_or_authorize
    from durable.workflows.failures import refusal
    from durable.workflows.handlers import Receives
    from durable.workflows.inbox import Envelope, Inbox
    from durable.workflows.placement.at_once import why_held_back
    from durable.workflows.placement.slots import Leave, SlotState
    from durable.workflows.placement.state import PlacementState


# What a person's message is answered, and what it changes.
Change = tuple[str, Callable[[], None]]


def no_change() -> None:
    """Changes nothing."""


class PlacementMessages(Receives):
    """One method for each message in the registry; a person's is planned before it counts."""

    _inbox: Inbox
    _state: PlacementState
    # The requests that this run has done; what others have done, the authority knows.
    _done: set[str]

    @workflow.query(name="status", description="Where every slot is, why, and who acts next.")
    def status(self) -> PlacementStatus:
        return self._state.status()

    async def _act_on(self, envelope: Envelope[Any]) -> None:
        """The authority counts a request with its answer; only then is it done, in memory."""
        handler = getattr(self, f"on_{envelope.message.name}")
        if envelope.message.verb is None:
            self._inbox.accept(envelope, handler(envelope.payload))
            return
        answer, change, refused = None, no_change, None
        try:
            answer, change = handler(envelope.payload)
        except ApplicationError as error:
            refused = error
        scope = Scope(tenant=self._state.key.tenant, region=self._state.key.region)
        request = envelope.payload.request_id
        again = await recall_or_authorize(
            envelope,
            scope,
            run=workflow.info().run_id,
            is_done=request in self._done,
            answer=answer,
        )
        if again is None and request in self._done:  # the authority has forgotten it by now
            again = "It was done before; nothing changed now."
        if again is not None:
            self._inbox.repeat(envelope, again)
        elif refused is not None:
            raise refused
        else:
            change()
            self._done.add(request)
            self._inbox.accept(envelope, answer)

    # ── from people ─────────────────────────────────────────────────────────────────────────────

    def on_retry_now(self, retry: payloads.RetryPlacement) -> Change:
        self._refuse_before_the_first_look()
        if not self._state.slots.in_phase(SlotPhase.WAITING):
            return "Nothing waits for a node.", no_change
        held_back = why_held_back(self._state.share, self._state.slots)
        if held_back is not None:
            return held_back.sentence, no_change

        def look_at_once() -> None:
            self._retry()
            for slot in self._state.slots.in_phase(SlotPhase.WAITING):
                slot.retry_at = None

        return "Looking for nodes now.", look_at_once

    def on_evict(self, evict: payloads.EvictSlots) -> Change:
        self._refuse_before_the_first_look()
        slots = self._state.slots.by_number
        chosen = evict.slots or tuple(slots)
        unknown = sorted(set(chosen) - set(slots))
        if unknown:
            known = ", ".join(map(str, sorted(slots))) or "none"
            sentence = f"There is no slot {unknown[0]} here; slots: {known}."
            raise refusal(RefusalCode.UNKNOWN_SLOT, sentence)
        why = shorten(f"evicted by {evict.actor}: {evict.reason}")
        evicted = [slots[number] for number in chosen]
        evicted = [
            slot
            for slot in evicted
            if slot.token is not None and (slot.leave is None or (evict.force and slot.blocked))
        ]
        if not evicted:
            return "Nothing to stop: it waits for a node, or is being stopped already.", no_change

        def stop() -> None:
            for slot in evicted:
                slot.leave, slot.evidence, slot.is_forced = Leave.AGAIN, why, evict.force

        each = "it is" if len(evicted) == 1 else "each is"
        limit = "" if evict.force else " as far as the disruption allowance lets it"
        stopping = f"Stopping {slot_numbers(evicted)}{limit}"
        return f"{stopping}; {each} placed again once it has stopped.", stop

    # ── from controllers ────────────────────────────────────────────────────────────────────────

    def on_look(self, look: payloads.Look) -> str:
        """A hint: what changed is read from the region."""
        self._recall_now()
        return "Looking."

    def on_wake(self, wake: payloads.Wake) -> str:
        self._retry()
        return "Looking for nodes now."

    def _refuse_before_the_first_look(self) -> None:
        if not self._state.knows_past:
            raise refusal(
                RefusalCode.WRONG_STATE,
                f"The database of {self._state.key.region} does not answer, so it is not known "
                "what runs here; send this again shortly.",
            )

    def _retry(self) -> None:
        """Decides now about all that wait, but for what failed: it waits until its own time."""
        self._state.next_retry_at = None

    def _recall_now(self) -> None:
        self._state.must_recall, self._state.recall_at = True, None


def slot_numbers(slots: Iterable[SlotState]) -> str:
    """A few of them, for a sentence."""
    numbers = [slot.slot for slot in slots]
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"slot{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:5]))}{more}"
