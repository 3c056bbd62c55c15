"""How a share is doing: the slots that ended, all of them in a few words, and who acts next."""

from collections import Counter
from collections.abc import Collection, Sequence
from enum import StrEnum

from pydantic import AwareDatetime

from durable.explain.queue import QueueExplanation
from durable.model.ids import NodeId, Slot
from durable.model.placement.claims import ObservedSlot
from durable.model.placement.records import LastTry
from durable.model.states import BindingState, ObservedState, RequestState
from durable.model.work.phases import Owner, slot_owner
from durable.validation.value import Value


class SlotEnd(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    # On request, or because its node was lost: that says nothing about the work itself.
    STOPPED = "stopped"


class EndedSlot(Value):
    """The last try of a job's slot that no longer runs, and the evidence of its end."""

    slot: Slot
    end: SlotEnd
    node: NodeId
    attempt: int
    tries: int
    evidence: str
    log_directory: str | None = None
    at: AwareDatetime


def ended_slot(last: LastTry) -> EndedSlot:
    return EndedSlot(
        slot=last.slot,
        end=_end(last),
        node=last.node,
        attempt=last.attempt,
        tries=last.tries,
        evidence=last.stop_reason or last.evidence,
        log_directory=last.log_directory,
        at=last.at,
    )


def _end(last: LastTry) -> SlotEnd:
    if last.stop_reason is not None:
        return SlotEnd.STOPPED
    match last.state:
        case ObservedState.STOPPED:
            return SlotEnd.COMPLETED
        case ObservedState.FAILED:
            return SlotEnd.FAILED
        case _:
            return SlotEnd.STOPPED


def describe_condition(
    slots: Collection[Slot],
    observed: Sequence[ObservedSlot],
    ended: Sequence[EndedSlot],
    queue: QueueExplanation | None,
) -> str:
    """`2 serving, 1 waiting of 3`."""
    states = Counter(one.state for one in observed)
    counts = {state.value: states[state] for state in BindingState}
    waiting = 0 if queue is None else queue.request.waiting
    held_back = 0 if queue is None else queue.request.held_back
    completed = sum(one.end is SlotEnd.COMPLETED for one in ended if one.slot in slots)
    # Slots that are tried again are among those that wait.
    remaining = len(slots) - len(observed) - waiting - held_back - completed
    given_up = min(remaining, len(ended) - completed)
    counts |= {"waiting": waiting, "held back": held_back}
    counts |= {"completed": completed, "given up": given_up}
    parts = [f"{count} {what}" for what, count in counts.items() if count > 0]
    if not parts and not slots:
        return "nothing is left"
    return f"{', '.join(parts) or 'nothing placed'} of {len(slots)}"


def next_owner(
    slots: Collection[Slot],
    observed: Sequence[ObservedSlot],
    ended: Sequence[EndedSlot],
    queue: QueueExplanation | None,
) -> Owner:
    """Who acts next on the region's share."""
    state = None if queue is None else queue.request.state
    has_ended = state is RequestState.WITHDRAWN
    failed = any(one.end is not SlotEnd.COMPLETED and one.slot in slots for one in ended)
    if has_ended and failed:
        return Owner.OPERATOR
    if state is RequestState.PENDING:
        return Owner.SCHEDULER
    if state is RequestState.TIMED_OUT:
        return Owner.OPERATOR
    owners = [slot_owner(one.state, stop_requested=one.stop_requested) for one in observed]
    acting = next((owner for owner in owners if owner is not Owner.NONE), None)
    if acting is not None:
        return acting
    # Everything that exists is as it should be; that must also be everything that is desired.
    completed = {one.slot for one in ended if one.end is SlotEnd.COMPLETED}
    if {one.slot for one in observed} | (completed & {*slots}) == {*slots}:
        return Owner.NONE
    return Owner.WORKLOAD if queue is None or has_ended else Owner.SCHEDULER
