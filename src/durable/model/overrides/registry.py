"""Every kind of override. A further kind is one file of this room and one line here."""

from durable.model.overrides import (
    avoid_node,
    avoid_zone,
    break_glass,
    emergency_quota,
    hold,
    pin,
    policy_freeze,
    priority_boost,
    recovery_budget,
)
from durable.model.overrides.kind import Kind

_KINDS: tuple[Kind, ...] = (
    avoid_zone.KIND,
    avoid_node.KIND,
    hold.KIND,
    pin.KIND,
    priority_boost.KIND,
    emergency_quota.KIND,
    recovery_budget.KIND,
    policy_freeze.KIND,
    break_glass.KIND,
)

# No kind lasts longer.
LONGEST_TTL = max(kind.longest_ttl for kind in _KINDS)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
