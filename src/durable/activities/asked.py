"""What every intent of a placement says: of which share and slot, in which attempt, who asks."""

from typing import Any

from durable.activities.steps import Claim, Share
from durable.model.ids import ActorId

ACTOR = ActorId("controller:placement")


def of_slot(share: Share, slot: int, attempt: int, epoch: int) -> dict[str, Any]:
    return {
        "region": share.region,
        "tenant": share.tenant,
        "workload": share.workload,
        "generation": share.generation,
        "slot": slot,
        "attempt": attempt,
        "epoch": epoch,
        "actor": ACTOR,
    }


def of_claim(share: Share, claim: Claim, epoch: int, evidence: str) -> dict[str, Any]:
    of = of_slot(share, claim.slot, claim.attempt, epoch)
    return {**of, "token": claim.token, "ordinal": claim.ordinal, "evidence": evidence}
