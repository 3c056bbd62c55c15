"""What one batch sees of its region while it holds the region's lock.

Nobody else can change these rows until the batch commits, so what the rules find here is true.
Amounts are plain tuples: a batch touches them hundreds of times.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from durable.model.resources import Amounts, minus, plus
from durable.model.states import PolicyState, RegionState


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """Whether a node may take work: what its operators and its agent say of it."""

    node: str
    state: str
    cordon_reason: str | None
    lease_epoch: int | None
    lease_expires_at: datetime | None


@dataclass(slots=True)
class NodeEntry:
    """A node of the batch. Unlike scheduling's `NodeFacts` it changes with every grant, and counts
    free devices, which only the commit hands out."""

    node: str
    zone: str
    dedicated_to: str | None
    labels: dict[str, str]
    health: NodeHealth
    capacity: Amounts
    used: Amounts
    free_devices: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class GrantEntry:
    granted: Amounts
    used: Amounts


@dataclass(slots=True)
class BudgetEntry:
    amount: Amounts
    used: Amounts
    expires_at: datetime
    incident: str | None


@dataclass(slots=True)
class ClaimEntry:
    """A reservation and, once it is bound, its binding and what was last observed of it."""

    token: int
    tenant: str
    workload: str
    generation: int
    slot: int
    attempt: int
    node: str
    amounts: Amounts
    budget: str | None
    policy_revision: int
    state: str
    expires_at: datetime
    binding_state: str | None
    stop_requested: bool
    observed: str | None
    health: NodeHealth

    @property
    def is_freed(self) -> bool:
        return self.state in ("released", "expired") or self.binding_state == "released"

    @property
    def serves(self) -> bool:
        """Whether a stop would take down something that serves."""
        return self.binding_state == "starting" and self.observed == "serving"


@dataclass(slots=True)
class Availability:
    """How many replicas of a workload serve here, and how many stops by choice must leave."""

    serving: int
    must_serve: int


SlotKey = tuple[str, str, int]


@dataclass(slots=True)
class Ledger:
    """The locked state, and the changes that the batch's intents have made to it so far."""

    region: str
    epoch: int
    version: int
    state: RegionState
    tokens_issued: int
    capacity: Amounts
    used: Amounts
    now: datetime
    nodes: dict[str, NodeEntry] = field(default_factory=dict[str, NodeEntry])
    grants: dict[str, GrantEntry] = field(default_factory=dict[str, GrantEntry])
    budgets: dict[str, BudgetEntry] = field(default_factory=dict[str, BudgetEntry])
    policies: dict[int, PolicyState] = field(default_factory=dict[int, PolicyState])
    owned_slots: set[SlotKey] = field(default_factory=set[SlotKey])
    slot_claims: dict[SlotKey, int] = field(default_factory=dict[SlotKey, int])
    claims: dict[int, ClaimEntry] = field(default_factory=dict[int, ClaimEntry])
    # By tenant and workload, of those that have a floor.
    availability: dict[tuple[str, str], Availability] = field(
        default_factory=dict[tuple[str, str], Availability]
    )
    # Rows to write, by kind of step; see ledger_writes for their order.
    writes: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])

    @property
    def next_version(self) -> int:
        return self.version + 1

    def write(self, statement: str, row: dict[str, Any]) -> None:
        self.writes.setdefault(statement, []).append(row)

    def ordinary_room(self) -> Amounts:
        """What ordinary work may still take: capacity less its use and the recovery headroom.

        A budget past its expiry keeps nothing free, but what was drawn on it is still in use.
        """
        room = minus(self.capacity, self.used)
        for budget in self.budgets.values():
            if budget.expires_at > self.now:
                unused = minus(budget.amount, budget.used)
                room = minus(room, unused)
        return room

    def claim(self, entry: ClaimEntry) -> None:
        """Takes what a new reservation needs out of everything that bounds it."""
        node, grant = self.nodes[entry.node], self.grants[entry.tenant]
        node.used = plus(node.used, entry.amounts)
        grant.used = plus(grant.used, entry.amounts)
        self.used = plus(self.used, entry.amounts)
        if entry.budget is not None:
            budget = self.budgets[entry.budget]
            budget.used = plus(budget.used, entry.amounts)
        self.claims[entry.token] = entry
        self.slot_claims[(entry.tenant, entry.workload, entry.slot)] = entry.token

    def free(self, entry: ClaimEntry) -> None:
        """Gives it back. Devices stay out of this batch: reuse may be late, never early."""
        if entry.node in self.nodes:
            node = self.nodes[entry.node]
            node.used = minus(node.used, entry.amounts)
        if entry.tenant in self.grants:
            grant = self.grants[entry.tenant]
            grant.used = minus(grant.used, entry.amounts)
        self.used = minus(self.used, entry.amounts)
        if entry.budget is not None:
            budget = self.budgets[entry.budget]
            budget.used = minus(budget.used, entry.amounts)
        self.slot_claims.pop((entry.tenant, entry.workload, entry.slot), None)
