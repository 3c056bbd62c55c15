"""One region's share of one workload generation: what is wanted of it, and how far it has come."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import Generation, IncidentId, NodeId, RegionId, Slot
from durable.model.placement.claims import ObservedSlot
from durable.model.placement.pending import Pending
from durable.model.states import BindingState, RequestState
from durable.model.work.workload import MAX_REPLICAS, WorkloadSpec
from durable.validation.value import Value


class DesiredShare(Value):
    """The slots that a region is to run of its workload, and what they run."""

    slots: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)]
    spec: WorkloadSpec
    # Counts the shares that a workload has given out: an older one never replaces a newer one.
    revision: Annotated[int, Field(ge=1)]
    # Why everything is to be stopped for good; the placement ends when nothing of it is left.
    release_reason: str | None = None
    # Of a job: how many of these slots may have a claim at once; None if nothing limits that.
    at_once: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | None = None
    # Of a job with a deadline: when it was admitted, and until when it is to be done.
    admitted_at: AwareDatetime | None = None
    due_at: AwareDatetime | None = None
    # The recovery that moved the workload, and which of these slots it moved: only they may draw on
    # its budgets.
    incident: IncidentId | None = None
    moved: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)] = ()


class ShareReport(Value):
    """How far one region's share has come."""

    region: RegionId
    generation: Generation
    version: Annotated[int, Field(ge=0)]
    at: AwareDatetime
    by_state: Mapping[BindingState, int]
    slots: Annotated[int, Field(ge=0)] = 0
    completed: Annotated[int, Field(ge=0)] = 0
    waiting: Annotated[int, Field(ge=0)] = 0
    # How many of its claims somebody asked to have replaced.
    to_replace: Annotated[int, Field(ge=0)] = 0
    # Of a job: slots that were given up, slots that wait until others have ended, and how often
    # slots have failed in all.
    given_up: Annotated[int, Field(ge=0)] = 0
    held_back: Annotated[int, Field(ge=0)] = 0
    failures: Annotated[int, Field(ge=0)] = 0
    # How many claims it was last told that it may have at once.
    at_once: Annotated[int, Field(ge=0)] | None = None
    # When its placement came to its end.
    ended_at: AwareDatetime | None = None
    request: RequestState | None = None
    pending: Pending | None = None

    @property
    def is_known(self) -> bool:
        """Whether its region has heard of it: its placement requested or holds something."""
        return self.request is not None or any(self.by_state.values())

    @property
    def remaining(self) -> int:
        """How many slots of a job have not come to their end; it never grows."""
        return 0 if self.has_ended else self.slots - self.completed - self.given_up

    @property
    def in_use(self) -> int:
        """How many of its slots have a claim."""
        return max(0, self.remaining - self.waiting - self.held_back)

    @property
    def has_ended(self) -> bool:
        """Whether its placement has nothing left: all was released, or its job is done."""
        return self.request is RequestState.WITHDRAWN and not any(self.by_state.values())


class SlotsObserved(Value):
    """Every bound slot of a share, at one version of the region."""

    version: Annotated[int, Field(ge=0)]
    at: AwareDatetime
    slots: Annotated[tuple[ObservedSlot, ...], Field(max_length=MAX_REPLICAS)]


class SlotFailures(Value):
    """How often a slot of a job has failed, when and where last, and whether it is not retried."""

    count: Annotated[int, Field(ge=1)]
    last_at: AwareDatetime
    node: NodeId
    is_fatal: bool = False


class PlacementPast(Value):
    """What earlier runs of a placement left, for one that has no memory of its own."""

    next_attempt: Annotated[int, Field(ge=1)]
    enqueued_at: AwareDatetime | None = None
    # Of a job: the slots that are done, and how often the others failed.
    completed: tuple[Slot, ...] = ()
    failures: Mapping[Slot, SlotFailures] = Field(default={})
    failures_in_all: Annotated[int, Field(ge=0)] = 0


class PlacementFacts(Value):
    """The live claims of a placement, and its share if that is news."""

    claims: tuple[ObservedSlot, ...]
    # When they were read, by the clock that the claims' own times are of.
    read_at: AwareDatetime | None = None
    share: DesiredShare | None = None
    past: PlacementPast | None = None
