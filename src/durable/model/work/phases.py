"""Phases, counts and who acts next, derived once: status, tables and explanations show the same."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Self

from durable.model.states import BindingState
from durable.model.work.workload import WorkloadKind
from durable.validation.value import Value


class SlotPhase(StrEnum):
    """How far one slot of a placement has come; from `bound` on, what was last observed of it."""

    WAITING = "waiting"
    RESERVED = "reserved"
    BOUND = "bound"
    STARTING = "starting"
    RUNNING = "running"
    READY = "ready"
    SERVING = "serving"
    UNKNOWN = "unknown"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    COMPLETED = "completed"
    GIVEN_UP = "given_up"


class PlacementPhase(StrEnum):
    """A placement in one word: how far its least advanced slot has come."""

    EMPTY = "empty"
    WAITING = "waiting"
    PROGRESSING = "progressing"
    SERVING = "serving"
    UNKNOWN = "unknown"
    STOPPING = "stopping"
    COMPLETED = "completed"
    GIVEN_UP = "given_up"
    RELEASING = "releasing"


class WorkloadPhase(StrEnum):
    PROGRESSING = "progressing"
    WAITING = "waiting"
    ROLLING = "rolling"
    PAUSED = "paused"
    SERVING = "serving"
    COMPLETE = "complete"
    FAILED = "failed"
    DELETING = "deleting"
    DELETED = "deleted"


class Owner(StrEnum):
    """Who acts next."""

    SCHEDULER = "the regional worker's next decision"
    AGENT = "the node's agent"
    AUTHORITY = "the regional commit"
    WORKLOAD = "the workload, which starts its placements"
    OPERATOR = "an operator"
    NONE = "none: in its desired state"


# The phases on the way up are one phase for those who search: each change of it costs a write.
_PLACEMENT_PHASES = {
    SlotPhase.WAITING: PlacementPhase.WAITING,
    SlotPhase.RESERVED: PlacementPhase.PROGRESSING,
    SlotPhase.BOUND: PlacementPhase.PROGRESSING,
    SlotPhase.STARTING: PlacementPhase.PROGRESSING,
    SlotPhase.RUNNING: PlacementPhase.PROGRESSING,
    SlotPhase.READY: PlacementPhase.PROGRESSING,
    SlotPhase.SERVING: PlacementPhase.SERVING,
    SlotPhase.UNKNOWN: PlacementPhase.UNKNOWN,
    SlotPhase.FAILED: PlacementPhase.STOPPING,
    SlotPhase.STOPPING: PlacementPhase.STOPPING,
    SlotPhase.STOPPED: PlacementPhase.STOPPING,
    SlotPhase.COMPLETED: PlacementPhase.COMPLETED,
    SlotPhase.GIVEN_UP: PlacementPhase.GIVEN_UP,
}
_LEAST_ADVANCED_FIRST = list(SlotPhase)


def placement_phase(slots: Iterable[SlotPhase], *, is_releasing: bool) -> PlacementPhase:
    if is_releasing:
        return PlacementPhase.RELEASING
    least = min(slots, key=_LEAST_ADVANCED_FIRST.index, default=None)
    return PlacementPhase.EMPTY if least is None else _PLACEMENT_PHASES[least]


_BOUND = frozenset(BindingState) - {
    BindingState.FAILED, BindingState.STOPPED, BindingState.RELEASED
}  # fmt: skip
_READY = frozenset({BindingState.READY, BindingState.SERVING})


class Counts(Value):
    """How many replicas have come how far; each phase includes those that are further."""

    bound: int = 0
    ready: int = 0
    serving: int = 0

    @classmethod
    def of(cls, by_state: Mapping[BindingState, int]) -> Self:
        return cls(
            bound=sum(count for state, count in by_state.items() if state in _BOUND),
            ready=sum(count for state, count in by_state.items() if state in _READY),
            serving=by_state.get(BindingState.SERVING, 0),
        )


def workload_phase(
    *,
    kind: WorkloadKind,
    wanted: int,
    serving: int,
    completed: int,
    is_waiting: bool,
    is_rolling: bool = False,
    is_paused: bool = False,
    has_ended: bool = False,
    is_deleting: bool = False,
    is_deleted: bool = False,
) -> WorkloadPhase:
    """The workload in one word.

    A job is over when its placements have reported their end, not when the last replica is counted.
    """
    if is_deleted:
        return WorkloadPhase.DELETED
    if is_deleting:
        return WorkloadPhase.DELETING
    if has_ended:
        return WorkloadPhase.COMPLETE if completed >= wanted else WorkloadPhase.FAILED
    if is_paused:
        return WorkloadPhase.PAUSED
    if is_rolling:
        return WorkloadPhase.ROLLING
    if kind is WorkloadKind.SERVICE and serving >= wanted:
        return WorkloadPhase.SERVING
    return WorkloadPhase.WAITING if is_waiting else WorkloadPhase.PROGRESSING


def slot_owner(state: BindingState | None, *, stop_requested: bool) -> Owner:
    """Who acts next on one slot that has a claim."""
    match state:
        case None | BindingState.BOUND:
            return Owner.AUTHORITY
        case BindingState.STARTING | BindingState.RUNNING | BindingState.READY:
            return Owner.AGENT
        case BindingState.UNKNOWN:
            return Owner.AGENT
        case BindingState.FAILED | BindingState.STOPPED:
            return Owner.SCHEDULER
        case BindingState.SERVING | BindingState.RELEASED:
            return Owner.AGENT if stop_requested else Owner.NONE
