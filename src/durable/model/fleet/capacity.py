"""What there is to spend: regions, nodes, quotas, grants and what is kept for recovery."""

from datetime import datetime

from pydantic import AwareDatetime

from durable.model.fleet.labels import Labels, Taint
from durable.model.ids import (
    ActorId,
    BudgetId,
    DeviceId,
    IncidentId,
    NodeId,
    OverrideId,
    PoolId,
    RegionId,
    TenantId,
    ZoneId,
)
from durable.model.resources import ZERO, Resources
from durable.model.states import NodeState, RegionState
from durable.validation.value import Value


class RegionStatus(Value):
    """A region's coordination row: fenced by epoch, ordered by version."""

    region: RegionId
    epoch: int
    version: int
    state: RegionState


class Device(Value):
    device: DeviceId
    healthy: bool
    holder: int | None


class Node(Value):
    """A node as its agent and the operators left it, with the lease that keeps it trusted."""

    region: RegionId
    node: NodeId
    zone: ZoneId
    pool: PoolId
    capacity: Resources
    used: Resources
    devices: tuple[Device, ...]
    labels: Labels
    taints: tuple[Taint, ...]
    dedicated_to: TenantId | None
    state: NodeState
    cordon_reason: str | None
    cordoned_by: ActorId | None
    lease_epoch: int | None
    lease_expires_at: AwareDatetime | None

    def takes_work(self, region: RegionStatus, now: datetime) -> bool:
        return (
            self.state is NodeState.READY
            and self.cordon_reason is None
            and self.lease_epoch == region.epoch
            and self.lease_expires_at is not None
            and self.lease_expires_at > now
        )


class Quota(Value):
    """A tenant's quota: `hard` is in force, `target` is wanted; they differ while reclaiming."""

    tenant: TenantId
    hard: Resources
    target: Resources
    protected: Resources
    granted: Resources

    @property
    def reclaiming(self) -> str | None:
        """What a lowered quota still waits for, as a sentence."""
        if self.hard == self.target:
            return None
        return (
            f"The quota of {self.tenant} was lowered to {self.target} while {self.granted} is "
            f"granted; {self.hard} stays in force until the regions return what they do not use."
        )


class Grant(Value):
    """A region's share of a tenant's quota."""

    region: RegionId
    tenant: TenantId
    granted: Resources
    used: Resources
    protected: Resources
    # What new work may take, and other regions.
    free: Resources
    # What runs beside it, on emergency quotas in force and over.
    beside: Resources = ZERO


class RecoveryBudget(Value):
    """Capacity of a region that only the named incident may draw on, until it expires."""

    region: RegionId
    budget: BudgetId
    amount: Resources
    used: Resources
    expires_at: AwareDatetime
    incident: IncidentId | None
    # The override that made it, for one incident, and ends it itself.
    override: OverrideId | None = None
