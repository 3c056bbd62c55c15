"""What bounds the whole request whatever the nodes have: the tenant's grant, and the room."""

from dataclasses import dataclass

from durable.model.amounts import Amounts, at_least_nothing, how_often, minus
from durable.model.pending import Pending
from durable.model.pending_reasons import NoGrant, PendingCode, Shortage
from durable.model.resources import Resources
from durable.scheduling.question import Question


@dataclass(frozen=True, slots=True)
class Limit:
    """How many of the slots may be placed, and what the others wait for."""

    slots: int
    pending: Pending | None = None


def tightest(question: Question) -> Limit:
    """The gate that lets the fewest slots through; between equals, the one that is asked first."""
    return min((gate(question) for gate in GATES), key=lambda limit: limit.slots)


def grant_gate(question: Question) -> Limit:
    wish, region = question.wish, question.snapshot.region
    found = question.snapshot.grants.get(wish.tenant)
    if found is None:
        return Limit(
            0, Pending.because(PendingCode.NO_GRANT, NoGrant(region=region, tenant=wish.tenant))
        )
    return _limit(question, minus(*found), PendingCode.GRANT)


def headroom_gate(question: Question) -> Limit:
    """Recovery draws on its budget instead, which the commit checks."""
    if question.wish.draw is not None:
        return Limit(len(question.wish.slots))
    return _limit(question, question.snapshot.room, PendingCode.HEADROOM)


GATES = (grant_gate, headroom_gate)


def _limit(question: Question, left: Amounts, code: PendingCode) -> Limit:
    wish = question.wish
    fits = how_often(left, question.asked)
    if fits >= len(wish.slots):
        return Limit(len(wish.slots))
    shortage = Shortage(
        region=question.snapshot.region,
        tenant=wish.tenant,
        # What has shrunk may have less than nothing left.
        left=Resources.of(*at_least_nothing(left)),
        requested=wish.spec.resources,
        enough_for=fits,
        slots=len(wish.slots),
    )
    return Limit(fits, Pending.because(code, shortage))
