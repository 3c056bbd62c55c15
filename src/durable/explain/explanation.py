"""What an explanation is made of: the queue, the attempts, the bindings, and who moves next."""

from collections import Counter
from collections.abc import Sequence

from pydantic import AwareDatetime

from durable.explain.attempt import AttemptAccount
from durable.explain.ends import End, EndAccount
from durable.explain.queue import QueueAccount
from durable.model.ids import Generation, NodeId, RegionId, Slot, TenantId, WorkloadName
from durable.model.slots import ObservedSlot
from durable.model.states import BindingState, RequestState
from durable.model.workload import WorkloadSpec
from durable.signals.status import Owner
from durable.validation.value import Value


class SlotAccount(Value):
    """Where one slot is now, and who moves it next."""

    slot: Slot
    node: NodeId
    state: BindingState
    attempt: int
    token: int
    since: AwareDatetime
    evidence: str
    owner: Owner


class RegionAccount(Value):
    """One region's share of the generation."""

    region: RegionId
    slots: tuple[Slot, ...]
    queue: QueueAccount | None
    attempts: tuple[AttemptAccount, ...]
    # Earlier ones, which are not among `attempts`.
    attempts_left_out: int
    bindings: tuple[SlotAccount, ...]
    # Of a job: those slots that ran and run no more.
    ends: tuple[EndAccount, ...]
    condition: str
    owner: Owner


class Explanation(Value):
    """A workload's generation, region by region."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    current_generation: Generation
    spec: WorkloadSpec
    deleting: bool
    ended: bool
    # Complete, failed or deleted, and the count of it; known of the newest generation.
    end: str | None
    end_sentence: str | None
    regions: tuple[RegionAccount, ...]


def slot_account(one: ObservedSlot) -> SlotAccount:
    assert one.state is not None, "a share lists what is bound"
    assert one.since is not None
    return SlotAccount(
        slot=one.slot,
        node=one.node,
        state=one.state,
        attempt=one.attempt,
        token=one.token,
        since=one.since,
        evidence=one.evidence,
        owner=_owner_of_slot(one),
    )


def condition_of(
    standing: Sequence[ObservedSlot],
    slots: Sequence[int],
    queue: QueueAccount | None,
    ends: Sequence[EndAccount],
) -> str:
    counts = Counter(one.state.value for one in standing if one.state is not None)
    parts = [f"{count} {state}" for state, count in sorted(counts.items())]
    waiting = 0 if queue is None else queue.waiting
    completed = sum(one.end is End.COMPLETED for one in ends if one.slot in slots)
    # Those that are tried again are among those that wait.
    without = len(slots) - len(standing) - waiting - completed
    given_up = min(without, len(ends) - completed)
    told = {"waiting": waiting, "completed": completed, "given up": given_up}
    parts += [f"{count} {what}" for what, count in told.items() if count > 0]
    if not parts and not slots:
        return "nothing is left"
    return f"{', '.join(parts) or 'nothing placed'} of {len(slots)}"


def owner_of(
    standing: Sequence[ObservedSlot],
    slots: Sequence[int],
    queue: QueueAccount | None,
    ends: Sequence[EndAccount],
) -> Owner:
    over = queue is not None and queue.state is RequestState.WITHDRAWN
    has_failed = over and any(o.end is not End.COMPLETED and o.slot in slots for o in ends)
    if has_failed or (queue is not None and queue.is_held):
        return Owner.OPERATOR
    if queue is not None and queue.state is RequestState.PENDING:
        return Owner.SCHEDULER
    if queue is not None and queue.state is RequestState.TIMED_OUT:
        return Owner.OPERATOR
    owners = [_owner_of_slot(one) for one in standing]
    return next((owner for owner in owners if owner is not Owner.NOBODY), Owner.NOBODY)


def _owner_of_slot(slot: ObservedSlot) -> Owner:
    match slot.state:
        case BindingState.BOUND | None:
            return Owner.AUTHORITY
        case BindingState.STARTING | BindingState.RUNNING | BindingState.READY:
            return Owner.AGENT
        case BindingState.UNKNOWN:
            return Owner.AGENT
        case BindingState.FAILED | BindingState.STOPPED:
            return Owner.SCHEDULER
        case BindingState.SERVING | BindingState.RELEASED:
            return Owner.AGENT if slot.stop_requested else Owner.NOBODY
