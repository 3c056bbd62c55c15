"""The states of every object, and for each kind of object one table of the legal moves."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

State = TypeVar("State", bound=StrEnum)


class IllegalMove(ValueError):  # noqa: N818 - the word is the sentence
    """A move that the state's table does not have."""


class Moves(Generic[State]):
    """One table of legal moves. Staying put is no move."""

    def __init__(self, start: State, table: Mapping[State, tuple[State, ...]]) -> None:
        self.start = start
        self.table = {before: frozenset(after) for before, after in table.items()}

    def allows(self, before: State, after: State) -> bool:
        return after in self.table[before]

    def check(self, before: State, after: State) -> None:
        if self.allows(before, after):
            return
        legal = ", ".join(state for state in type(before) if state in self.table[before])
        raise IllegalMove(
            f"{type(before).__name__} cannot move from {before} to {after}; "
            + (f"legal next states: {legal}" if legal else f"{before} is final")
        )

    @property
    def final(self) -> frozenset[State]:
        """The states that nothing leaves."""
        return frozenset(before for before, after in self.table.items() if not after)


class ReservationState(StrEnum):
    HELD = "held"
    BOUND = "bound"
    RELEASED = "released"
    EXPIRED = "expired"


RESERVATION_MOVES = Moves(
    ReservationState.HELD,
    {
        ReservationState.HELD: (
            ReservationState.BOUND,
            ReservationState.RELEASED,
            ReservationState.EXPIRED,
        ),
        ReservationState.BOUND: (),
        ReservationState.RELEASED: (),
        ReservationState.EXPIRED: (),
    },
)


class BindingState(StrEnum):
    BOUND = "bound"
    STARTING = "starting"
    RUNNING = "running"
    READY = "ready"
    SERVING = "serving"
    UNKNOWN = "unknown"
    FAILED = "failed"
    STOPPED = "stopped"
    RELEASED = "released"


# On the way to serving; and the states that need an explanation.
COMING_UP = (
    BindingState.BOUND,
    BindingState.STARTING,
    BindingState.RUNNING,
    BindingState.READY,
)
TROUBLED = frozenset({BindingState.FAILED, BindingState.STOPPED, BindingState.UNKNOWN})


class ObservedState(StrEnum):
    """What an agent can see of a binding; the last two are the end of its process."""

    STARTING = "starting"
    RUNNING = "running"
    READY = "ready"
    SERVING = "serving"
    FAILED = "failed"
    STOPPED = "stopped"


_ENDED = (BindingState.FAILED, BindingState.STOPPED, BindingState.RELEASED)
_TROUBLE = (BindingState.UNKNOWN, *_ENDED)
# Reports may be lost on the way, so what was observed last may skip a step, forward or back.
_OBSERVED = (BindingState.RUNNING, BindingState.READY, BindingState.SERVING)

BINDING_MOVES = Moves(
    BindingState.BOUND,
    {
        BindingState.BOUND: (BindingState.STARTING, *_TROUBLE),
        BindingState.STARTING: (*_OBSERVED, *_TROUBLE),
        BindingState.RUNNING: (BindingState.READY, BindingState.SERVING, *_TROUBLE),
        BindingState.READY: (BindingState.RUNNING, BindingState.SERVING, *_TROUBLE),
        BindingState.SERVING: (BindingState.RUNNING, BindingState.READY, *_TROUBLE),
        BindingState.UNKNOWN: (
            BindingState.BOUND,
            BindingState.STARTING,
            *_OBSERVED,
            *_ENDED,
        ),
        # The process is gone; what it held is free once the release shows it.
        BindingState.FAILED: (BindingState.RELEASED,),
        BindingState.STOPPED: (BindingState.RELEASED,),
        BindingState.RELEASED: (),
    },
)


class NodeState(StrEnum):
    READY = "ready"
    UNKNOWN = "unknown"
    LOST = "lost"
    REMOVED = "removed"


NODE_MOVES = Moves(
    NodeState.READY,
    {
        NodeState.READY: (NodeState.UNKNOWN, NodeState.REMOVED),
        NodeState.UNKNOWN: (NodeState.READY, NodeState.LOST),
        # A lost node may come back; its agent then stops what was moved elsewhere.
        NodeState.LOST: (NodeState.READY, NodeState.REMOVED),
        NodeState.REMOVED: (),
    },
)


class RegionState(StrEnum):
    OPEN = "open"
    # Known to the global side alone: the region is given nothing new, and goes on.
    SUSPECTED = "suspected"
    FENCED = "fenced"


# Fencing raises the epoch, failback opens the region again: nothing between the two changes
# what the authority accepts, so the phases of a recovery are the recovery's own.
REGION_MOVES = Moves(
    RegionState.OPEN,
    {
        RegionState.OPEN: (RegionState.SUSPECTED, RegionState.FENCED),
        RegionState.SUSPECTED: (RegionState.OPEN, RegionState.FENCED),
        RegionState.FENCED: (RegionState.OPEN,),
    },
)


class OverrideState(StrEnum):
    PROPOSED = "proposed"
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"
    REJECTED = "rejected"


OVERRIDE_MOVES = Moves(
    OverrideState.PROPOSED,
    {
        OverrideState.PROPOSED: (
            OverrideState.ACTIVE,
            OverrideState.REJECTED,
            OverrideState.REVOKED,
            OverrideState.EXPIRED,
        ),
        OverrideState.ACTIVE: (OverrideState.EXPIRED, OverrideState.REVOKED),
        OverrideState.EXPIRED: (),
        OverrideState.REVOKED: (),
        OverrideState.REJECTED: (),
    },
)


class PolicyState(StrEnum):
    """The state of one policy revision in one region."""

    PUBLISHED = "published"
    SHADOW = "shadow"
    CANARY = "canary"
    ACTIVE = "active"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"


_POLICY_ENDS = (PolicyState.SUPERSEDED, PolicyState.ROLLED_BACK)

POLICY_MOVES = Moves(
    PolicyState.PUBLISHED,
    {
        # Only the canary's region sees a canary; elsewhere promotion comes straight from shadow.
        PolicyState.PUBLISHED: (
            PolicyState.SHADOW,
            PolicyState.CANARY,
            PolicyState.ACTIVE,
            *_POLICY_ENDS,
        ),
        PolicyState.SHADOW: (PolicyState.CANARY, PolicyState.ACTIVE, *_POLICY_ENDS),
        PolicyState.CANARY: (PolicyState.ACTIVE, *_POLICY_ENDS),
        PolicyState.ACTIVE: _POLICY_ENDS,
        # A rollback restores the revision that the rolled back one had superseded.
        PolicyState.SUPERSEDED: (PolicyState.ACTIVE, PolicyState.ROLLED_BACK),
        PolicyState.ROLLED_BACK: (),
    },
)


class RequestState(StrEnum):
    """The state of a scheduling request: where its slots are, as far as its placement has come."""

    PENDING = "pending"
    RESERVED = "reserved"
    BOUND = "bound"
    PLACED = "placed"
    WITHDRAWN = "withdrawn"
    TIMED_OUT = "timed_out"


# A placement stays open while its slots live: a lost node puts what was placed back into the queue,
# room that appears late places what had timed out. The row is written now and then, so a step may
# be skipped. Withdrawn alone is the end.
_OPEN = tuple(state for state in RequestState if state is not RequestState.WITHDRAWN)

REQUEST_MOVES = Moves(
    RequestState.PENDING,
    {
        RequestState.WITHDRAWN: (),
        **{state: tuple(other for other in RequestState if other is not state) for state in _OPEN},
    },
)
