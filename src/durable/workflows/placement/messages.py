"""What a placement does with each message; they are read one by one, between two steps."""

from collections.abc import Iterable, Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.model.operators.rights import Scope, SlotEffect
    from durable.model.refusal import RefusalCode
    from durable.model.work.phases import SlotPhase
    from durable.signals import payloads
    from durable.signals.status import PlacementStatus
    from durable.validation.text import shorten
    from durable.workflows.authorization import count, recall_or_authorize
    from durable.workflows.failures import refusal
    from durable.workflows.handlers import Receives
    from durable.workflows.inbox import Envelope, Inbox
    from durable.workflows.placement.at_once import why_held_back
    from durable.workflows.placement.slots import Leave, SlotState
    from durable.workflows.placement.state import PlacementState


# What a person's message is answered, and what it does.
Plan = tuple[str, SlotEffect]

NOTHING = SlotEffect()


class PlacementMessages(Receives):
    """One method for each message in the registry; a person's is planned before it counts."""

    _inbox: Inbox
    _state: PlacementState
    # The requests that this run has done, also when the authority has forgotten them.
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
        answer, effect, refused = None, NOTHING, None
        try:
            answer, effect = handler(envelope.payload)
        except ApplicationError as error:
            refused = error
        scope = Scope(tenant=self._state.key.tenant, region=self._state.key.region)
        request = envelope.payload.request_id
        counted = await count(envelope, scope, answer, effect)
        if refused is not None and (counted is None or not self._state.knows_past):
            raise refused
        if counted is None and request in self._done:  # the authority has forgotten it by now
            self._inbox.repeat(envelope, "It was done before; nothing changed now.")
            return
        effect = effect if counted is None else counted.effect
        name, undone = envelope.message.name, list[SlotState]()
        if effect.slots:
            undone = getattr(self, f"_undone_by_{name}")(envelope.payload, effect)
        if counted is not None and not undone:
            self._inbox.repeat(envelope, counted.repeated)
            return
        if counted is not None:
            # The answer was lost, or the memory: it is done now, so it takes the right now.
            await recall_or_authorize(envelope, scope)
        if undone:
            getattr(self, f"_{name}")(envelope.payload, undone)
        self._done.add(request)
        self._inbox.accept(envelope, answer if counted is None else counted.answer)

    # ── from people ─────────────────────────────────────────────────────────────────────────────

    def on_retry_now(self, retry: payloads.RetryPlacement) -> Plan:
        self._refuse_before_the_first_look()
        waiting = self._state.slots.in_phase(SlotPhase.WAITING)
        if not waiting:
            return "Nothing waits for a node.", NOTHING
        held_back = why_held_back(self._state.share, self._state.slots)
        if held_back is not None:
            return held_back.sentence, NOTHING
        crashes = {slot.slot: slot.crash_count for slot in waiting}
        effect = SlotEffect(slots=crashes, attempt=self._state.next_attempt)
        return "Looking for nodes now.", effect

    def _undone_by_retry_now(
        self, retry: payloads.RetryPlacement, effect: SlotEffect
    ) -> list[SlotState]:
        """Those that go on resting, with no decision and no further crash since it was counted."""
        state = self._state
        all_rest = state.next_retry_at is not None and state.next_attempt <= effect.attempt
        return [
            slot
            for slot in state.slots.in_phase(SlotPhase.WAITING)
            if effect.slots.get(slot.slot) == slot.crash_count
            and (all_rest or slot.retry_at is not None)
        ]

    def _retry_now(self, retry: payloads.RetryPlacement, undone: Sequence[SlotState]) -> None:
        self._retry()
        for slot in undone:
            slot.retry_at = None

    def on_evict(self, evict: payloads.EvictSlots) -> Plan:
        self._refuse_before_the_first_look()
        slots = self._state.slots.by_number
        chosen = evict.slots or tuple(slots)
        unknown = sorted(set(chosen) - set(slots))
        if unknown:
            known = ", ".join(map(str, sorted(slots))) or "none"
            sentence = f"There is no slot {unknown[0]} here; slots: {known}."
            raise refusal(RefusalCode.UNKNOWN_SLOT, sentence)
        tokens = ((number, slots[number].token) for number in chosen)
        claims = {number: token for number, token in tokens if token is not None}
        evicted = self._undone_by_evict(evict, SlotEffect(slots=claims))
        if not evicted:
            return "Nothing to stop: it waits for a node, or is being stopped already.", NOTHING
        each = "it is" if len(evicted) == 1 else "each is"
        limit = "" if evict.force else " as far as the disruption allowance lets it"
        stopping = f"Stopping {slot_numbers(evicted)}{limit}"
        effect = SlotEffect(slots={slot.slot: claims[slot.slot] for slot in evicted})
        return f"{stopping}; {each} placed again once it has stopped.", effect

    def _undone_by_evict(self, evict: payloads.EvictSlots, effect: SlotEffect) -> list[SlotState]:
        """Those that have the same claim, and are not to leave, or not as forcefully."""
        return [
            slot
            for number, slot in self._state.slots.by_number.items()
            if slot.token is not None
            and slot.token == effect.slots.get(number)
            and (slot.leave is None or (evict.force and bool(slot.blocked) and not slot.is_forced))
        ]

    def _evict(self, evict: payloads.EvictSlots, undone: Sequence[SlotState]) -> None:
        why = shorten(f"evicted by {evict.actor}: {evict.reason}")
        for slot in undone:
            slot.leave = slot.leave or Leave.AGAIN
            slot.evidence, slot.is_forced = why, evict.force

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
