"""Avoid a zone: nothing new is placed there, and what runs there moves if that is asked for."""

from datetime import timedelta

from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind


class AvoidZone(EffectInput):
    # Whether what runs there is replaced elsewhere, within its disruption allowance.
    move: bool = False

    def effects(self, scope: OverrideScope) -> Effects:
        assert scope.zone is not None, "the kind's scope names a zone"
        return Effects(avoid_zones=(scope.zone,), moves=self.move)


KIND = Kind(
    name="avoid-zone",
    sentence="Place nothing in a zone; with `move`, replace elsewhere what runs there.",
    effect=AvoidZone,
    default_ttl=timedelta(minutes=30),
    longest_ttl=timedelta(days=7),
    needs=("region", "zone"),
    allows=("tenant", "workload"),
    example={"scope": {"region": "us-east", "zone": "us-east-a"}, "effect": {"move": True}},
)
