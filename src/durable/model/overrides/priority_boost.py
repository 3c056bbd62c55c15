"""Priority boost: work of a tenant goes ahead of others in the queues while it is in force."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from durable.model.overrides.effects import MAX_RAISE, Effects, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind


class PriorityBoost(EffectInput):
    by: Annotated[int, Field(ge=1, le=MAX_RAISE)]

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(raises_priority=self.by)


KIND = Kind(
    name="priority-boost",
    sentence="Raise the priority of a tenant's work, or of one workload, in the queues.",
    effect=PriorityBoost,
    default_ttl=timedelta(hours=1),
    longest_ttl=timedelta(days=1),
    needs=("tenant",),
    allows=("region", "workload"),
    example={"scope": {"tenant": "fraud", "workload": "fraud-scan"}, "effect": {"by": 200}},
)
