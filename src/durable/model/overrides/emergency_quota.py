"""Emergency quota: a tenant may reserve more than its grant in a region, for a while."""

from datetime import timedelta
from typing import Self

from pydantic import model_validator

from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind
from durable.model.resources import Resources


class EmergencyQuota(EffectInput):
    amount: Resources

    @model_validator(mode="after")
    def _be_something(self) -> Self:
        if self.amount.is_zero:
            raise ValueError("got nothing; allowed: an amount of cpu, memory or gpu above 0")
        return self

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(draw=self.amount)


KIND = Kind(
    name="emergency-quota",
    sentence="Let a tenant reserve so much beside its grant in a region; what runs on it when it "
    "ends is not stopped.",
    effect=EmergencyQuota,
    default_ttl=timedelta(hours=1),
    longest_ttl=timedelta(days=1),
    needs=("region", "tenant"),
    needs_approval=True,
    example={
        "scope": {"region": "us-east", "tenant": "risk"},
        "effect": {"amount": {"cpu": 8, "memory": "16Gi"}},
    },
)
