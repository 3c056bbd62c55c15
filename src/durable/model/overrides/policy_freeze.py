"""Policy freeze: no revision of the scheduler policy is promoted while it is in force."""

from datetime import timedelta

from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind


class PolicyFreeze(EffectInput):
    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(freezes_policy=True)


KIND = Kind(
    name="policy-freeze",
    sentence="Promote no policy revision, in one region or anywhere; a rollback stays possible.",
    effect=PolicyFreeze,
    default_ttl=timedelta(days=1),
    longest_ttl=timedelta(days=7),
    allows=("region",),
    verb="policy",
    example={"scope": {}, "effect": {}},
)
