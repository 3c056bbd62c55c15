"""How much a deadline adds to a job's priority: more as it nears, within what the policy allows."""

from datetime import datetime
from typing import NamedTuple

from durable.model.policy.policy import Urgency


class Raise(NamedTuple):
    """By how much a priority is raised, and until when that stays so; None: for good."""

    raised_by: int
    until: datetime | None


def urgency_at(
    urgency: Urgency, priority: int, admitted_at: datetime, due_at: datetime, now: datetime
) -> Raise:
    """The raise at a moment; it only ever grows, and stays at its most once the deadline passed."""
    most = max(0, min(urgency.most, urgency.ceiling - priority))
    if not most:
        return Raise(0, None)
    # The last step comes before the deadline, so that it can still help.
    begins = admitted_at + (due_at - admitted_at) * urgency.begins
    each = (due_at - begins) / urgency.steps
    taken = 0 if now < begins else min(urgency.steps, 1 + int((now - begins) / each))
    until = None if taken == urgency.steps else begins + each * taken
    return Raise(most * taken // urgency.steps, until)
