"""What a decision found, apart from its numbers: two that found the same are one to a reader."""

import json
from hashlib import sha256

from durable.model.placement.pending import Pending
from durable.scheduling.request import PlacementRequest, Proposal


def findings_of(request: PlacementRequest, proposal: Proposal) -> str | None:
    """A digest of what was requested and why no slot got a node; none if any slot did.

    How many nodes are full, and how full, changes all the time; the queue's row has the newest
    numbers. What is found anew: other slots, another policy, another reason.
    """
    if proposal.assignments:
        return None
    found = {
        "request": request.model_dump(mode="json", exclude={"attempt"}, exclude_defaults=True),
        "policy": proposal.evidence.policy_revision,
        "pending": _codes(proposal.pending),
        "rejections": sorted({(line.code, line.words) for line in proposal.evidence.rejections}),
    }
    return sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:32]


def _codes(pending: Pending | None) -> list[str]:
    """The reason, and what is behind it if it is a gang's."""
    if pending is None:
        return []
    because = pending.parameters.get("because")
    behind = str(because.get("code")) if isinstance(because, dict) else ""
    return [pending.code.value, behind]
