"""Every kind of override: one table, and what a person says about each effect."""

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from durable.model.ids import IncidentId
from durable.model.overrides.effects import MAX_RAISE, Effects, Gate, KeptBudget, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind
from durable.model.resources import Resources


class _Hold(EffectInput):
    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(holds=True)


class _PolicyFreeze(EffectInput):
    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(freezes_policy=True)


class _Where(EffectInput):
    # Whether what runs where it may not be placed is replaced, within its disruption allowance.
    move: bool = False


class _Avoid(_Where):
    def effects(self, scope: OverrideScope) -> Effects:
        if scope.node is not None:
            return Effects(avoid_nodes=(scope.node,), moves=self.move)
        assert scope.zone is not None, "the kind's scope names a zone or a node"
        return Effects(avoid_zones=(scope.zone,), moves=self.move)


class _Pin(_Where):
    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(only_zone=scope.zone, only_node=scope.node, moves=self.move)


class _PriorityBoost(EffectInput):
    by: Annotated[int, Field(ge=1, le=MAX_RAISE)]

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(raises_priority=self.by)


class _EmergencyQuota(EffectInput):
    amount: Resources

    @model_validator(mode="after")
    def _be_something(self) -> Self:
        if self.amount.is_zero:
            raise ValueError("got nothing; allowed: an amount of cpu, memory or gpu above 0")
        return self

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(draw=self.amount)


class _RecoveryBudget(_EmergencyQuota):
    incident: IncidentId

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(budget=KeptBudget(amount=self.amount, incident=self.incident))


class _BreakGlass(EffectInput):
    """No safety invariant is a gate: capacity, quota, residency, fences and leases hold as ever."""

    gates: Annotated[tuple[Gate, ...], Field(min_length=1, max_length=len(Gate))]

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(skips=tuple(sorted(set(self.gates))))


_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="avoid-zone",
            sentence="Place nothing in a zone; with `move`, replace elsewhere what runs there.",
            effect=_Avoid,
            default_ttl=30 * _MINUTE,
            longest_ttl=7 * _DAY,
            needs=("region", "zone"),
            allows=("tenant", "workload"),
            example={"scope": {"region": "us-east", "zone": "us-east-a"}, "effect": {"move": True}},
        ),
        Kind(
            name="avoid-node",
            sentence="Place nothing on a node; with `move`, replace elsewhere what runs there.",
            effect=_Avoid,
            default_ttl=30 * _MINUTE,
            longest_ttl=7 * _DAY,
            needs=("region", "node"),
            allows=("tenant", "workload"),
            example={
                "scope": {"region": "us-east", "node": "us-east-a-1"}, "effect": {"move": False},
            },
        ),
        Kind(
            name="hold",
            sentence="Place nothing new of a workload, whatever its generation; what runs stays.",
            effect=_Hold,
            default_ttl=_HOUR,
            longest_ttl=7 * _DAY,
            needs=("tenant", "workload"),
            allows=("region",),
            example={"scope": {"tenant": "risk", "workload": "risk-api"}, "effect": {}},
        ),
        Kind(
            name="pin",
            sentence="Place a workload only in the named zone or on the named node of a region.",
            effect=_Pin,
            default_ttl=_HOUR,
            longest_ttl=7 * _DAY,
            needs=("region", "tenant", "workload"),
            needs_one_of=("zone", "node"),
            example={
                "scope": {
                    "region": "us-east", "zone": "us-east-b", "tenant": "risk",
                    "workload": "risk-api",
                },
                "effect": {"move": False},
            },
        ),
        Kind(
            name="priority-boost",
            sentence="Raise the priority of a tenant's work, or of one workload, in the queues.",
            effect=_PriorityBoost,
            default_ttl=_HOUR,
            longest_ttl=_DAY,
            needs=("tenant",),
            allows=("region", "workload"),
            example={"scope": {"tenant": "fraud", "workload": "fraud-scan"}, "effect": {"by": 200}},
        ),
        Kind(
            name="emergency-quota",
            sentence="Let a tenant reserve so much beside its grant in a region; what runs on it "
            "when it ends is not stopped.",
            effect=_EmergencyQuota,
            default_ttl=_HOUR,
            longest_ttl=_DAY,
            needs=("region", "tenant"),
            needs_approval=True,
            example={
                "scope": {"region": "us-east", "tenant": "risk"},
                "effect": {"amount": {"cpu": 8, "memory": "16Gi"}},
            },
        ),
        Kind(
            name="recovery-budget",
            sentence="Keep capacity of a region for the recovery of another one, and open it for "
            "that.",
            effect=_RecoveryBudget,
            default_ttl=4 * _HOUR,
            longest_ttl=7 * _DAY,
            needs=("region",),
            needs_approval=True,
            example={
                "scope": {"region": "us-west"},
                "effect": {"amount": {"cpu": 16, "memory": "32Gi"}, "incident": "us-east-2"},
            },
        ),
        Kind(
            name="policy-freeze",
            sentence="Promote no policy revision, in one region or anywhere; a rollback stays "
            "possible.",
            effect=_PolicyFreeze,
            default_ttl=_DAY,
            longest_ttl=7 * _DAY,
            allows=("region",),
            verb="policy",
            example={"scope": {}, "effect": {}},
        ),
        Kind(
            name="break-glass",
            sentence="Let work of a tenant pass gates that the policy lists as overridable.",
            effect=_BreakGlass,
            default_ttl=15 * _MINUTE,
            longest_ttl=4 * _HOUR,
            needs=("tenant",),
            allows=("region", "workload"),
            needs_approval=True,
            extends_alone=False,
            verb="break-glass",
            example={
                "scope": {"tenant": "risk", "workload": "risk-api", "region": "us-east"},
                "effect": {"gates": ["cordon"]},
            },
        ),
    )
}  # fmt: skip

# No kind lasts longer.
LONGEST_TTL = max(kind.longest_ttl for kind in KINDS.values())
