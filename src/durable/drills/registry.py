"""Every drill: what it rehearses, and the runbook that says so."""

from durable.drills import (
    authority_outage,
    break_glass,
    job_failover,
    lost_operator_key,
    policy_rollback,
    recovery_override,
    region_loss,
    zones,
)
from durable.drills.drill import Drill

DRILLS: dict[str, Drill] = {
    name: Drill(name, sentence, f"runbooks/{runbook}.md", run)
    for name, runbook, run, sentence in (
        (
            "override-expiry", "avoid-zone", zones.override_expiry,
            "Avoid a zone for thirty seconds: work moves, and the override ends by itself.",
        ),
        (
            "policy-rollback", "policy-rollback", policy_rollback.run,
            "Promote a policy, place work under it, roll it back: what it placed is replaced.",
        ),
        (
            "recovery-override", "recovery-override", recovery_override.run,
            "Keep capacity for an incident: two people agree, only that incident gets it, and it "
            "ends.",
        ),
        (
            "break-glass", "break-glass", break_glass.run,
            "Open a gate: work passes a cordon, capacity holds as ever, the gate closes again.",
        ),
        (
            "lost-operator-key", "lost-operator-key", lost_operator_key.run,
            "Declare a key lost: what it signs is refused from then on, and a new key counts.",
        ),
        (
            "regional-failover", "regional-failover", region_loss.regional_failover,
            "Lose a region: its critical work serves elsewhere in time, and goes back.",
        ),
        (
            "job-failover", "job-failover", job_failover.run,
            "Lose a region in the middle of a job: the rest is done elsewhere, each slot once.",
        ),
        (
            "zone-loss", "partition", zones.zone_loss,
            "Lose a zone: its work goes to other zones, and the region is not taken for lost.",
        ),
        (
            "partition", "partition", region_loss.partition,
            "Cut a region off: its work moves once, and what it still had ends when it is back.",
        ),
        (
            "flapping", "failback", region_loss.flapping,
            "A region that is lost, back and lost again within a minute is one loss.",
        ),
        (
            "clock-jump", "clock-jump", authority_outage.clock_jump,
            "A region's clock was ahead: its lease counts for nothing until it is renewed.",
        ),
        (
            "authority-outage", "partition", authority_outage.run,
            "The authority does not answer for ninety seconds: work goes on, nothing is lost.",
        ),
    )
}  # fmt: skip
