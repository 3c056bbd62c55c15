"""Every drill."""

from durable.drills import (
    authority_outage,
    break_glass,
    flapping,
    lost_operator_key,
    override_expiry,
    partition,
    policy_rollback,
    recovery_override,
    regional_failover,
    zone_loss,
)
from durable.drills.drill import Drill

DRILLS: dict[str, Drill] = {
    drill.name: drill
    for drill in (
        override_expiry.DRILL,
        policy_rollback.DRILL,
        recovery_override.DRILL,
        break_glass.DRILL,
        lost_operator_key.DRILL,
        regional_failover.DRILL,
        zone_loss.DRILL,
        partition.DRILL,
        flapping.DRILL,
        authority_outage.DRILL,
    )
}
