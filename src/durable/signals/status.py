"""What the query `status` answers: where something is, why, and who moves it next."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import Generation, NodeId, RegionId, Slot, TenantId, Token, WorkloadName
from durable.model.pending import Pending
from durable.model.workload import Condition, WorkloadSpec
from durable.validation.value import Value


class Phase(StrEnum):
    """Where one slot of a placement is; from `bound` on it is what was last observed."""

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


class Owner(StrEnum):
    """Who moves it next."""

    SCHEDULER = "the regional worker's next decision"
    AGENT = "the node's agent"
    AUTHORITY = "the regional commit"
    OPERATOR = "an operator"
    NOBODY = "nobody: it is where it shall be"


class SlotView(Value):
    slot: Slot
    phase: Phase
    attempt: int
    token: Token | None
    node: NodeId | None
    since: AwareDatetime
    deadline: AwareDatetime | None = None
    evidence: str = ""


class RejectedMessage(Value):
    """A message that changed nothing, kept so that its sender can find out why."""

    at: AwareDatetime
    name: str
    why: str
    payload: str
    # It was taken after all: kept for the audit alone, like every wish of a person.
    taken: bool = False


class PlacementStatus(Value):
    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    phase: str
    pending: Pending | None
    owner: Owner
    next_retry_at: AwareDatetime | None
    placed_by: AwareDatetime
    held_by: str | None
    attempts: int
    slots: tuple[SlotView, ...]
    rejected: tuple[RejectedMessage, ...]
    rejected_in_all: int
    messages: int


class RegionProgress(Value):
    """One region's share: how many slots it has and how many of them came how far."""

    region: RegionId
    wanted: int
    bound: int = 0
    ready: int = 0
    serving: int = 0
    completed: int = 0
    waiting: int = 0
    by_state: Mapping[str, int] = Field(default={})
    pending: Pending | None = None

    @property
    def waits(self) -> str | None:
        """What it waits for, in the words of the whole workload."""
        return self.pending and f"{self.region}: {self.pending}"


class WorkloadStatus(Value):
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    observed_generation: Annotated[int, Field(ge=0)]
    spec: WorkloadSpec
    phase: str
    wanted: int
    bound: int
    ready: int
    serving: int
    completed: int
    deleting: bool
    conditions: tuple[Condition, ...]
    regions: tuple[RegionProgress, ...]
    waits_for: tuple[str, ...] = ()
    rejected: tuple[RejectedMessage, ...] = ()
    rejected_in_all: int = 0

    def has_reached(self, stage: str) -> bool:
        """Whether all came so far, and those that are too many have gone."""
        return getattr(self, stage) >= self.wanted >= self.bound
