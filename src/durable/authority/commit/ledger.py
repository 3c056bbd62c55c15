"""What one batch sees of its region while it holds the region's lock.

Nothing else can change these rows until the batch commits, so what the rules find here is true.
Amounts are plain tuples: a batch touches them hundreds of times.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from durable.model.fleet.region_life import HeldLease
from durable.model.overrides.effects import Gate
from durable.model.overrides.in_force import RegionalOverride
from durable.model.resources import NOTHING, Amounts, minus, plus
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
    """What is left of a grant for new work; less than nothing while more runs than was granted."""

    free: Amounts
    # Of what is in use, what runs on emergency draws that are over.
    overdrawn: Amounts


@dataclass(slots=True)
class BudgetEntry:
    amount: Amounts
    used: Amounts
    expires_at: datetime
    incident: str | None


@dataclass(slots=True)
class DrawEntry:
    """What a tenant may use beside its grant, while the override behind it is in force."""

    override: str
    tenant: str
    amount: Amounts
    used: Amounts
    expires_at: datetime
    has_ended: bool

    def is_open(self, now: datetime) -> bool:
        return not self.has_ended and now < self.expires_at


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
    zone: str
    amounts: Amounts
    budget: str | None
    # The emergency draw that it counts against, instead of the grant.
    emergency: str | None
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


@dataclass(slots=True)
class Availability:
    """How many replicas of a workload serve here, and how many stops by choice must leave."""

    serving: int
    must_serve: int
    # Which of the claims that the batch stops are among those that serve.
    serving_tokens: frozenset[int]


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
    # The part of it that is held on nodes that fell silent: it takes nothing from those that live.
    on_silent_nodes: Amounts = NOTHING
    # On which the global side leaves the region to itself; None: it was never leased.
    lease: HeldLease | None = None
    nodes: dict[str, NodeEntry] = field(default_factory=dict[str, NodeEntry])
    grants: dict[str, GrantEntry] = field(default_factory=dict[str, GrantEntry])
    budgets: dict[str, BudgetEntry] = field(default_factory=dict[str, BudgetEntry])
    policies: dict[int, PolicyState] = field(default_factory=dict[int, PolicyState])
    # Those that have not been ended; whether one is in force, only the clock can say.
    overrides: tuple[RegionalOverride, ...] = ()
    # What the policy in force lets an override pass: those of the canary while there is one.
    overridable_gates: frozenset[Gate] = frozenset()
    draws: dict[str, DrawEntry] = field(default_factory=dict[str, DrawEntry])
    # Which of the slots that draw on a recovery budget a recovery moved here, and which recovery.
    moved_slots: dict[SlotKey, str] = field(default_factory=dict[SlotKey, str])
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
        """What ordinary work may still take of the nodes that live, beside the recovery headroom.

        A budget past its expiry keeps nothing free, but what was drawn on it is still in use.
        """
        room = plus(minus(self.capacity, self.used), self.on_silent_nodes)
        for budget in self.budgets.values():
            if budget.expires_at > self.now:
                unused = minus(budget.amount, budget.used)
                room = minus(room, unused)
        return room

    def claim(self, entry: ClaimEntry) -> None:
        """Takes what a new reservation needs out of everything that bounds it."""
        node = self.nodes[entry.node]
        node.used = plus(node.used, entry.amounts)
        if entry.emergency is not None:
            draw = self.draws[entry.emergency]
            draw.used = plus(draw.used, entry.amounts)
        else:
            grant = self.grants[entry.tenant]
            grant.free = minus(grant.free, entry.amounts)
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
        draw = None if entry.emergency is None else self.draws[entry.emergency]
        if draw is not None:
            draw.used = minus(draw.used, entry.amounts)
        if entry.tenant in self.grants and (draw is None or not draw.is_open(self.now)):
            grant = self.grants[entry.tenant]
            grant.free = plus(grant.free, entry.amounts)
            if draw is not None:
                grant.overdrawn = minus(grant.overdrawn, entry.amounts)
        self.used = minus(self.used, entry.amounts)
        if entry.health.state in ("unknown", "lost"):
            self.on_silent_nodes = minus(self.on_silent_nodes, entry.amounts)
        if entry.budget is not None:
            budget = self.budgets[entry.budget]
            budget.used = minus(budget.used, entry.amounts)
        self.slot_claims.pop((entry.tenant, entry.workload, entry.slot), None)
