"""Break glass: work of a tenant passes gates that the policy lets people override.

No safety invariant is a gate: capacity, quota, residency, fences and leases hold as ever.
"""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from durable.model.overrides.effects import Effects, Gate, OverrideScope
from durable.model.overrides.kind import EffectInput, Kind


class BreakGlass(EffectInput):
    gates: Annotated[tuple[Gate, ...], Field(min_length=1, max_length=len(Gate))]

    def effects(self, scope: OverrideScope) -> Effects:
        return Effects(skips=tuple(sorted(set(self.gates))))


KIND = Kind(
    name="break-glass",
    sentence="Let work of a tenant pass gates that the policy lists as overridable.",
    effect=BreakGlass,
    default_ttl=timedelta(minutes=15),
    longest_ttl=timedelta(hours=4),
    needs=("tenant",),
    allows=("region", "workload"),
    needs_approval=True,
    extends_alone=False,
    verb="break-glass",
    example={
        "scope": {"tenant": "risk", "workload": "risk-api", "region": "us-east"},
        "effect": {"gates": ["cordon"]},
    },
)
