"""What the query `status` answers: where something is, why, and who acts next."""

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import AwareDatetime, Field, computed_field, model_validator

from durable.model.ids import Generation, NodeId, RegionId, Slot, TenantId, Token, WorkloadName
from durable.model.placement.pending import Pending
from durable.model.work.phases import Counts, Owner, PlacementPhase, SlotPhase, WorkloadPhase
from durable.model.work.rollout import RolloutProgress, RolloutState
from durable.model.work.share import ShareCounts
from durable.model.work.workload import Condition, WorkloadSpec
from durable.validation.value import Value


class SlotView(Value):
    """One slot as its placement remembers it; unlike an observed slot it may have no claim."""

    slot: Slot
    phase: SlotPhase
    attempt: int
    token: Token | None
    node: NodeId | None
    since: AwareDatetime
    deadline: AwareDatetime | None = None
    evidence: str = ""


class MessageRecord(Value):
    """A message that was received, and what came of it: kept for its sender, and for the audit."""

    at: AwareDatetime
    name: str
    answer: str
    payload: str
    # Whether it was accepted; a message that was rejected changed nothing.
    accepted: bool = False
    # Its position among all messages to the workflow.
    number: int = 0

    @property
    def key(self) -> str:
        """Under which the audit knows it; after a reset another message may have its number."""
        content = f"{self.at.isoformat()}\n{self.name}\n{self.answer}\n{self.payload}"
        return f"{self.number}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


class PlacementStatus(Value):
    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    phase: PlacementPhase
    pending: Pending | None
    owner: Owner
    next_retry_at: AwareDatetime | None
    placed_by: AwareDatetime
    attempts: int
    # That the last decision was made under.
    policy_revision: int | None = None
    slots: tuple[SlotView, ...]
    rejected: tuple[MessageRecord, ...]
    rejected_count: int
    messages: int


class RegionProgress(Counts, ShareCounts):
    """One region's share: how many slots it has and how many of them have come how far."""

    region: RegionId
    wanted: int
    # How many serve the wanted generation.
    updated: int = 0
    by_state: Mapping[str, int] = Field(default={})
    pending: Pending | None = None

    @property
    def waits_for(self) -> str | None:
        """What it waits for, in the words of the whole workload."""
        return self.pending and f"{self.region}: {self.pending}"


class ShareProgress(Counts):
    """One region's share of one generation; its placement is open."""

    generation: Generation
    region: RegionId


class WorkloadStatus(Counts):
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    observed_generation: Annotated[int, Field(ge=0)]
    spec: WorkloadSpec
    phase: WorkloadPhase
    wanted: int
    # How many serve the wanted generation.
    updated: int = 0
    completed: int
    given_up: int = 0
    failures: int = 0
    # Until when a job is to be done.
    due_at: AwareDatetime | None = None
    deleting: bool
    conditions: tuple[Condition, ...]
    regions: tuple[RegionProgress, ...]
    # The same by generation, the oldest first.
    shares: tuple[ShareProgress, ...] = ()
    # The last generation of which every replica served at once.
    stable_generation: Generation | None = None
    # The rollout that is under way, and how far replicas that have to be replaced have come.
    rollout: RolloutState | None = None
    progress: RolloutProgress | None = None
    # What the workload itself waits for; each region has its own reason.
    own_waits: tuple[str, ...] = ()
    rejected: tuple[MessageRecord, ...] = ()
    rejected_count: int = 0

    @computed_field
    @property
    def waits_for(self) -> tuple[str, ...]:
        """Every wait, its own first."""
        return (*self.own_waits, *(one.waits_for for one in self.regions if one.waits_for))

    @model_validator(mode="before")
    @classmethod
    def _drop_computed(cls, data: Any) -> Any:
        """Written for people beside what it is computed from, and never read back."""
        if not isinstance(data, Mapping):
            return data
        fields = cast(Mapping[str, Any], data)
        return {name: value for name, value in fields.items() if name != "waits_for"}

    @property
    def is_rolling(self) -> bool:
        """Whether replicas have to be replaced."""
        return self.progress is not None or self.rollout is not None

    def has_reached(self, phase: str) -> bool:
        """Whether every wanted replica has, of what is wanted, and no surplus one is bound."""
        return not self.is_rolling and getattr(self, phase) >= self.wanted >= self.bound
