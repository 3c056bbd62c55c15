"""Hold: nothing new of a workload is placed, in any generation; what runs stays."""

from datetime import timedelta

from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind


class Hold(EffectInput):
    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(holds=True)


KIND = Kind(
    name="hold",
    sentence="Place nothing new of a workload, whatever its generation; what runs stays.",
    effect=Hold,
    default_ttl=timedelta(hours=1),
    longest_ttl=timedelta(days=7),
    needs=("tenant", "workload"),
    allows=("region",),
    example={"scope": {"tenant": "risk", "workload": "risk-api"}, "effect": {}},
)
