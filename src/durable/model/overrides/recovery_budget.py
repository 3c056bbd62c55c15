"""Recovery budget: capacity of a region that only one incident's recovery may use, for a while."""

from datetime import timedelta
from typing import Self

from pydantic import model_validator

from durable.model.ids import IncidentId
from durable.model.overrides.effects import Effects, KeptBudget, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind
from durable.model.resources import Resources


class RecoveryBudgetInput(EffectInput):
    amount: Resources
    incident: IncidentId

    @model_validator(mode="after")
    def _be_something(self) -> Self:
        if self.amount.is_zero:
            raise ValueError("got nothing; allowed: an amount of cpu, memory or gpu above 0")
        return self

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(budget=KeptBudget(amount=self.amount, incident=self.incident))


KIND = Kind(
    name="recovery-budget",
    sentence="Keep capacity of a region for the recovery of another one, and open it for that.",
    effect=RecoveryBudgetInput,
    default_ttl=timedelta(hours=4),
    longest_ttl=timedelta(days=7),
    needs=("region",),
    needs_approval=True,
    example={
        "scope": {"region": "us-west"},
        "effect": {"amount": {"cpu": 16, "memory": "32Gi"}, "incident": "us-east-2"},
    },
)
