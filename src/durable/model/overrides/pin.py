"""Pin: a workload is placed in one zone or on one node of a region and nowhere else there."""

from datetime import timedelta

from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind


class Pin(EffectInput):
    # Whether what runs elsewhere in the region is replaced there, within its disruption allowance.
    move: bool = False

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(only_zone=scope.zone, only_node=scope.node, moves=self.move)


KIND = Kind(
    name="pin",
    sentence="Place a workload only in the named zone or on the named node of a region.",
    effect=Pin,
    default_ttl=timedelta(hours=1),
    longest_ttl=timedelta(days=7),
    needs=("region", "tenant", "workload"),
    needs_one_of=("zone", "node"),
    example={
        "scope": {
            "region": "us-east", "zone": "us-east-b", "tenant": "risk", "workload": "risk-api",
        },
        "effect": {"move": False},
    },
)  # fmt: skip
