"""What somebody wants to run, and how far it has come."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, model_validator

from durable.model.ids import Generation, TenantId, WorkloadName
from durable.model.intents import Requirements
from durable.model.resources import Resources
from durable.model.value import Value

MAX_REPLICAS = 10_000


class WorkloadSpec(Value):
    """The desired state: so many replicas of this size, wherever the requirements allow."""

    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
    resources: Resources
    priority: Annotated[int, Field(ge=0, le=1000)] = 100
    requirements: Requirements = Requirements()
    all_or_nothing: bool = False


class Condition(Value):
    """One thing that is, is not, or is not known of a workload, and since when."""

    type: Annotated[str, Field(min_length=1, max_length=63)]
    status: bool | None
    reason: str
    sentence: str
    since: AwareDatetime
    observed_generation: Generation


class Workload(Value):
    """A workload as its workflow keeps it; a finalizer holds it until every binding is released."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    spec: WorkloadSpec
    finalizers: tuple[str, ...] = ()
    delete_requested_at: AwareDatetime | None = None
    conditions: tuple[Condition, ...] = ()
    observed_generation: Annotated[int, Field(ge=0)] = 0
    replicas_by_state: Mapping[str, int] = Field(default={})

    @model_validator(mode="after")
    def _observe_only_the_past(self) -> Self:
        if self.observed_generation > self.generation:
            raise ValueError(f"observed_generation: allowed: at most {self.generation}")
        return self
