"""Avoid a node: nothing new is placed there, and what runs there moves if that is asked for."""

from datetime import timedelta

from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind


class AvoidNode(EffectInput):
    # Whether what runs there is replaced elsewhere, within its disruption allowance.
    move: bool = False

    def effects(self, scope: OverrideScope) -> Effects:
        assert scope.node is not None, "the kind's scope names a node"
        return Effects(avoid_nodes=(scope.node,), moves=self.move)


KIND = Kind(
    name="avoid-node",
    sentence="Place nothing on a node; with `move`, replace elsewhere what runs there.",
    effect=AvoidNode,
    default_ttl=timedelta(minutes=30),
    longest_ttl=timedelta(days=7),
    needs=("region", "node"),
    allows=("tenant", "workload"),
    example={"scope": {"region": "us-east", "node": "us-east-a-1"}, "effect": {"move": False}},
)
