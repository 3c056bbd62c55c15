"""What is held and what is observed: reservations, bindings, slots on their nodes, crashes."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, model_validator

from durable.model.ids import (
    ActorId,
    BudgetId,
    DeviceId,
    Generation,
    NodeId,
    PolicyRevision,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
)
from durable.model.resources import Resources
from durable.model.states import BindingState, ReservationState
from durable.validation.value import Value


class SlotOnNode(Value):
    slot: Slot
    node: NodeId


class HeldSlot(SlotOnNode):
    """A slot's live claim as a plan needs it: whose it is, and what it uses."""

    generation: Generation
    resources: Resources
    # None while the claim is a reservation that was not bound yet.
    state: BindingState | None = None


class Crash(SlotOnNode):
    """A slot failed on a node, and does not go back there for as long as the policy says."""

    at: AwareDatetime


class ObservedSlot(Value):
    """A slot with a live claim: where it is, and what was last observed of it."""

    slot: Slot
    token: Token
    attempt: Annotated[int, Field(ge=1)]
    node: NodeId
    # None while the claim is a reservation that was not bound yet.
    state: BindingState | None = None
    evidence: str = ""
    # Where its output is kept on its node, if its agent keeps any.
    log_directory: str | None = None
    since: AwareDatetime | None = None
    stop_requested: bool = False
    # Somebody asked for it to be replaced.
    is_marked: bool = False
    # That its process has ended with; None while it runs, and if a signal ended it.
    exit_code: int | None = None
    # Read only where a deadline counts from it.
    stop_requested_at: AwareDatetime | None = None
    # When the reservation lapses, unless it is bound before.
    expires_at: AwareDatetime | None = None


class Reservation(Value):
    """A lease on a node's resources for one attempt at one slot."""

    region: RegionId
    token: Token
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: int
    node: NodeId
    resources: Resources
    devices: tuple[DeviceId, ...]
    budget: BudgetId | None
    policy_revision: PolicyRevision
    state: ReservationState
    reserved_at: AwareDatetime
    expires_at: AwareDatetime
    ended_at: AwareDatetime | None
    # At these versions of the region the claim began and ended.
    created_version: int
    freed_version: int | None
    actor: ActorId
    evidence: str

    @property
    def claims(self) -> bool:
        """Whether it still counts against node, grant, devices and slot."""
        return self.freed_version is None

    def is_expired(self, now: datetime) -> bool:
        return self.state is ReservationState.HELD and self.expires_at <= now

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        if self.expires_at <= self.reserved_at:
            raise ValueError("expires_at: allowed: a moment after reserved_at")
        if len(self.devices) != self.resources.gpus:
            raise ValueError(f"devices: allowed: one for each of {self.resources.gpus} gpus")
        if (self.state is ReservationState.HELD) != (self.ended_at is None):
            raise ValueError("ended_at: allowed: a moment exactly when the reservation has ended")
        return self


class Binding(Value):
    """A reservation that became permanent, as the authority and its last observer know it."""

    region: RegionId
    token: Token
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: int
    node: NodeId
    state: BindingState
    observer: ActorId
    evidence: str
    log_directory: str | None = None
    since: AwareDatetime
    exit_code: int | None = None
