"""A wait with a reason and a deadline: the slots of one generation that want a place."""

from typing import Annotated, Self

from pydantic import AwareDatetime, Field, model_validator

from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.states import RequestState
from durable.model.workload import MAX_REPLICAS, WorkloadSpec
from durable.validation.value import Value


class SchedulingRequest(Value):
    """One region's share of one workload generation, on its way to a place."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slots: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)]
    priority: Annotated[int, Field(ge=0, le=1000)]
    state: RequestState
    pending_reason: str | None = None
    attempts: Annotated[int, Field(ge=0)] = 0
    enqueued_at: AwareDatetime
    deadline: AwareDatetime
    next_retry_at: AwareDatetime | None = None
    # How many of the slots have no place yet.
    waiting: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = 0
    # How many are done, of a job.
    completed: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = 0

    @model_validator(mode="after")
    def _wait_for_something_until_some_time(self) -> Self:
        if self.state is RequestState.PENDING and not self.pending_reason:
            raise ValueError("pending_reason: allowed: what it waits for, while it is pending")
        if self.deadline <= self.enqueued_at:
            raise ValueError("deadline: allowed: a moment after enqueued_at")
        if len(set(self.slots)) != len(self.slots):
            raise ValueError("slots: allowed: each slot once")
        return self


class RequestRow(SchedulingRequest):
    """A request with what its agents run, which is fixed when it is first written."""

    spec: WorkloadSpec


class QueuedRequest(SchedulingRequest):
    """A request that waits: how many are before it in its region, and since when it waits."""

    position: Annotated[int, Field(ge=1)]
    age_seconds: float
