"""A request in a region's queue: slots that need nodes, what they wait for, and until when."""

from typing import Annotated, Self

from pydantic import AwareDatetime, Field, model_validator

from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.placement.pending import Pending
from durable.model.states import RequestState
from durable.model.work.workload import MAX_REPLICAS, WorkloadSpec
from durable.validation.value import Value


class SchedulingRequest(Value):
    """One region's share of one workload generation, on its way to its nodes."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slots: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)]
    priority: Annotated[int, Field(ge=0, le=1000)]
    state: RequestState
    # What it waits for, while anything waits.
    pending: Pending | None = None
    attempts: Annotated[int, Field(ge=0)] = 0
    enqueued_at: AwareDatetime
    deadline: AwareDatetime
    next_retry_at: AwareDatetime | None = None
    # What its agents run; it is fixed when the request is first written.
    spec: WorkloadSpec
    # How many of the slots have no node yet.
    waiting: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = 0
    # Which slots of a job are done, and which were given up.
    completed: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)] = ()
    given_up: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)] = ()
    # How many wait until others have ended, and how often its slots failed in all.
    held_back: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = 0
    failures: Annotated[int, Field(ge=0)] = 0
    # The limit on its claims that it obeys.
    at_once: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] | None = None
    # The region's version on which it was last decided: what got better later may help it.
    decided_version: Annotated[int, Field(ge=0)] = 0
    # Of one that is withdrawn: the revision of the share that has ended with it.
    ends_revision: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _wait_for_a_reason_until_a_deadline(self) -> Self:
        if self.state is RequestState.PENDING and self.pending is None:
            raise ValueError("pending: allowed: what it waits for, while it is pending")
        if self.deadline <= self.enqueued_at:
            raise ValueError("deadline: allowed: a moment after enqueued_at")
        if len(set(self.slots)) != len(self.slots):
            raise ValueError("slots: allowed: each slot once")
        return self


class QueuedRequest(SchedulingRequest):
    """A request that waits: its position in the queue of its region, and how long it has waited."""

    position: Annotated[int, Field(ge=1)]
    age_seconds: float
