"""Every drill."""

from durable.cli.drills import (
    authority_outage,
    flapping,
    override_expiry,
    partition,
    policy_rollback,
    regional_failover,
    zone_loss,
)
from durable.cli.drills.drill import Drill

DRILLS: dict[str, Drill] = {
    drill.name: drill
    for drill in (
        override_expiry.DRILL,
        policy_rollback.DRILL,
        regional_failover.DRILL,
        zone_loss.DRILL,
        partition.DRILL,
        flapping.DRILL,
        authority_outage.DRILL,
    )
}
