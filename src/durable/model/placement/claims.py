"""What is held and what is observed: slots on their nodes, claims, crashes."""

from datetime import datetime
from typing import Annotated, NamedTuple

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
    # Under which its next step is sent: those before it were used up by refusals.
    ordinal: Annotated[int, Field(ge=1)] = 1


_ENDED = frozenset({BindingState.FAILED, BindingState.STOPPED, BindingState.RELEASED})


class RegionalClaim(NamedTuple):
    """A claim as its region knows it: whose it is, what it uses, and what was observed of it.

    A tuple, since thousands are read at once; placements hear of theirs as `ObservedSlot`.
    """

    # None while it is a reservation that was not bound yet.
    state: BindingState | None
    reservation: ReservationState
    devices: tuple[DeviceId, ...]
    region: RegionId
    token: Token
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: int
    node: NodeId
    cpu_millis: int
    memory_mib: int
    gpus: int
    policy_revision: PolicyRevision
    reserved_at: datetime
    # When the reservation lapses, if it is still held then.
    expires_at: datetime
    # At these versions of the region the claim began and ended.
    created_version: int
    freed_version: int | None
    started_at: datetime | None
    stop_requested_at: datetime | None
    observer: ActorId | None
    evidence: str
    log_directory: str | None
    since: datetime | None
    exit_code: int | None
    # It is to be replaced.
    is_marked: bool
    # Of its node.
    lease_epoch: int | None
    lease_expires_at: datetime | None
    # By the clock that all of these times are of.
    read_at: datetime
    # Where these were read: under which ordinal its next step is sent, and whether a job's it is.
    ordinal: int = 1
    is_job: bool | None = None

    @property
    def resources(self) -> Resources:
        return Resources.of(self.cpu_millis, self.memory_mib, self.gpus)

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

    def observed(self, evidence: str) -> ObservedSlot:
        """As its placement hears of it, with as much of the evidence as the message can carry."""
        is_held = self.reservation is ReservationState.HELD
        return ObservedSlot(
            slot=self.slot,
            token=self.token,
            attempt=self.attempt,
            node=self.node,
            state=self.state,
            evidence=evidence,
            since=self.since,
            stop_requested=self.stop_requested,
            is_marked=self.is_marked,
            exit_code=self.exit_code,
            stop_requested_at=self.stop_requested_at,
            expires_at=self.expires_at if is_held else None,
            ordinal=self.ordinal,
        )
