"""What an override may do: a few effects that decisions and commits know how to obey.

A kind turns what a person asks for into these. Decisions and commits know no kinds, so a further
kind needs no change of theirs.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from durable.model.ids import IncidentId, NodeId, RegionId, TenantId, WorkloadName, ZoneId
from durable.model.resources import Resources
from durable.validation.value import Value

MAX_RAISE = 1_000


class Gate(StrEnum):
    """A check of a decision that is not a safety invariant, so that a policy may let go of it."""

    CORDON = "cordon"
    AVOIDED = "avoided"
    HOLD = "hold"
    TAINTS = "taints"
    CRASHES = "crashes"
    SPREAD = "spread"


class OverrideScope(Value):
    """What an override is about; what is not named is not narrowed down."""

    region: RegionId | None = None
    zone: ZoneId | None = None
    node: NodeId | None = None
    tenant: TenantId | None = None
    workload: WorkloadName | None = None

    @model_validator(mode="after")
    def _name_whose(self) -> Self:
        if self.workload is not None and self.tenant is None:
            raise ValueError(f"it names workload {self.workload} but no tenant: name that as well")
        if (self.zone or self.node) and self.region is None:
            where = f"zone {self.zone}" if self.zone else f"node {self.node}"
            raise ValueError(f"it names {where} but no region: name that as well")
        return self

    @property
    def named(self) -> tuple[str, ...]:
        """The names of the fields that are given."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) is not None)

    def concerns(self, tenant: str, workload: str) -> bool:
        """Whether work of this name is meant."""
        return self.tenant in (None, tenant) and self.workload in (None, workload)

    def __str__(self) -> str:
        words = [f"{name} {getattr(self, name)}" for name in self.named]
        return ", ".join(words) or "everything"


class KeptBudget(Value):
    """Capacity that only this incident's recovery may use."""

    amount: Resources
    incident: IncidentId


class Effects(Value):
    """What is different for the work in an override's scope for as long as it is in force."""

    # Nodes in these zones, and these nodes, take nothing.
    avoid_zones: tuple[ZoneId, ...] = ()
    avoid_nodes: tuple[NodeId, ...] = ()
    # Only this zone or node takes anything.
    only_zone: ZoneId | None = None
    only_node: NodeId | None = None
    # What runs where it may not be placed is replaced elsewhere, within its disruption allowance.
    moves: bool = False
    # Nothing is placed.
    holds: bool = False
    raises_priority: Annotated[int, Field(ge=0, le=MAX_RAISE)] = 0
    # What the tenant may use beside its grant.
    draw: Resources | None = None
    budget: KeptBudget | None = None
    skips: tuple[Gate, ...] = ()
    # No revision of the policy is promoted.
    freezes_policy: bool = False

    @property
    def is_about_work(self) -> bool:
        """Whether it changes anything for work, and not only for policies."""
        return self != Effects(freezes_policy=True)

    def allows(self, zone: str, node: str) -> bool:
        """Whether work may be placed on this node."""
        return (
            zone not in self.avoid_zones
            and node not in self.avoid_nodes
            and self.only_zone in (None, zone)
            and self.only_node in (None, node)
        )

    @property
    def narrows(self) -> bool:
        """Whether it says where work may be placed."""
        return bool(self.avoid_zones or self.avoid_nodes or self.only_zone or self.only_node)
