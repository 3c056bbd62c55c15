"""What is held and what is observed: slots on their nodes, claims, crashes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import (
    ActorId,
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


class Crash(SlotOnNode):
    """A slot failed on a node, and does not go back there for as long as the policy says."""

    at: AwareDatetime


class ObservedSlot(Value):
    """A live claim as its placement hears of it: where it is, and what was last observed."""

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
    # It is to be replaced.
    is_marked: bool = False
    # That its process has ended with; None while it runs, and if a signal ended it.
    exit_code: int | None = None
    # Read only where a deadline counts from it.
    stop_requested_at: AwareDatetime | None = None
    # When the reservation lapses, unless it is bound before.
    expires_at: AwareDatetime | None = None


_ENDED = frozenset({BindingState.FAILED, BindingState.STOPPED, BindingState.RELEASED})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionalClaim:
    """A claim as its region knows it: whose it is, what it uses, and what was observed of it.

    Not a message: thousands are read at once, and placements hear of theirs as `ObservedSlot`.
    """

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
    policy_revision: PolicyRevision
    reservation: ReservationState
    reserved_at: datetime
    # When the reservation lapses, if it is still held then.
    expires_at: datetime
    # At these versions of the region the claim began and ended.
    created_version: int
    freed_version: int | None = None
    started_at: datetime | None = None
    stop_requested_at: datetime | None = None
    # None while it is a reservation that was not bound yet.
    state: BindingState | None = None
    observer: ActorId | None = None
    evidence: str = ""
    log_directory: str | None = None
    since: datetime | None = None
    exit_code: int | None = None
    # It is to be replaced.
    is_marked: bool = False
    # Where that was read.
    is_job: bool | None = None
    # Of its node.
    lease_epoch: int | None = None
    lease_expires_at: datetime | None = None
    # By the clock that all of these times are of.
    read_at: datetime
    # Under which its next step is sent, where that was read.
    ordinal: int = 1

    @property
    def is_live(self) -> bool:
        """Whether it still counts against node, grant, devices and slot."""
        return self.freed_version is None

    @property
    def stop_requested(self) -> bool:
        return self.stop_requested_at is not None

    @property
    def has_ended(self) -> bool:
        """Whether its agent saw it end, by itself or not."""
        return self.state in _ENDED

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop, or has ended by itself."""
        return self.stop_requested or self.has_ended

    @property
    def has_node_lapsed(self) -> bool:
        """Whether the lease of its node is no longer renewed."""
        return self.lease_expires_at is None or self.lease_expires_at <= self.read_at

    @property
    def age_seconds(self) -> float:
        """How long ago its state was observed."""
        return 0.0 if self.since is None else (self.read_at - self.since).total_seconds()

    def observed(self) -> ObservedSlot:
        """As its placement is told of it."""
        is_held = self.reservation is ReservationState.HELD
        return ObservedSlot(
            slot=self.slot,
            token=self.token,
            attempt=self.attempt,
            node=self.node,
            state=self.state,
            evidence=self.evidence,
            log_directory=self.log_directory,
            since=self.since,
            stop_requested=self.stop_requested,
            is_marked=self.is_marked,
            exit_code=self.exit_code,
            stop_requested_at=self.stop_requested_at,
            expires_at=self.expires_at if is_held else None,
        )
