"""What a decision is asked, and what it answers: a node for each slot that has one, and why."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from durable.model.ids import (
    Generation,
    NodeId,
    PolicyRevision,
    RegionId,
    Slot,
    TenantId,
    WorkloadName,
)
from durable.model.overrides.in_force import RegionalOverride, raised
from durable.model.placement.claims import Crash, SlotOnNode
from durable.model.placement.intents import Draw
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import Rejection
from durable.model.resources import NOTHING, Amounts
from durable.model.work.workload import WorkloadSpec
from durable.validation.value import Value


class PlacementRequest(Value):
    """Everything a decision knows of the workload; recorded with it, so that it can be replayed."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    attempt: Annotated[int, Field(ge=1)]
    slots: Annotated[tuple[Slot, ...], Field(min_length=1, max_length=10_000)]
    spec: WorkloadSpec
    # Slots of the same workload that have their node already; spread counts them.
    live: tuple[SlotOnNode, ...] = ()
    # Only those that still keep their slot away from their node.
    crashes: tuple[Crash, ...] = ()
    # By how much its deadline has raised its priority.
    urgency: Annotated[int, Field(ge=0, le=1_000)] = 0
    # Those that are in force and mean this workload, so that a replay sees them as they were.
    overrides: tuple[RegionalOverride, ...] = ()
    # What is left of each emergency draw that is open, and what runs on those that have ended since
    # the region was read.
    draws: tuple[Amounts, ...] = ()
    overdrawn: Amounts = NOTHING
    draw: Draw | None = None

    @property
    def priority(self) -> int:
        """Whose turn it is; what is placed keeps the priority of its spec."""
        return raised(self.spec.priority + self.urgency, self.overrides)

    @property
    def raised_by(self) -> int:
        return self.priority - self.spec.priority


class Candidate(Value):
    """One of the best nodes, with what each score gave it."""

    node: NodeId
    total: float
    scores: Mapping[str, float]


class Evidence(Value):
    """Why: enough to explain the decision, and with the request enough to make it again."""

    policy_revision: PolicyRevision
    cache_version: int
    cache_age_seconds: float
    nodes: int
    feasible: int
    sampled: int | None = None
    rejections: tuple[Rejection, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    # The grant before this decision and what it would leave.
    grant_before: Amounts | None = None
    grant_after: Amounts | None = None
    # What ordinary work could take beside the recovery headroom; it cannot be rebuilt later.
    room_before: Amounts | None = None
    # Leases have no version, so what was not fresh is written down.
    stale_nodes: tuple[NodeId, ...] = Field(default=(), max_length=10_000)


class Proposal(Value):
    """The authority may still refuse it; slots without a node have one reason for all of them."""

    assignments: tuple[SlotOnNode, ...]
    unplaced: tuple[Slot, ...]
    pending: Pending | None
    evidence: Evidence
