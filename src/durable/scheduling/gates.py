"""What bounds the whole request whatever the nodes have: the tenant's grant, and the room."""

from dataclasses import dataclass

from durable.model.pending import Pending, PendingCode
from durable.model.resources import Resources
from durable.scheduling.question import Question
from durable.scheduling.snapshot.region import Triple


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
        return Limit(0, Pending(
            code=PendingCode.NO_GRANT,
            sentence=f"Tenant {wish.tenant} has no grant in {region}; "
            "grant it some of its quota there, or let the workload run elsewhere.",
        ))  # fmt: skip
    left = minus(*found)
    return _limit(question, left, PendingCode.GRANT, (
        f"Tenant {wish.tenant} has {shown(left)} of its grant left in {region}",
        "what it does not use elsewhere is brought by itself, else let it use less or raise its "
        "quota",
    ))  # fmt: skip


def headroom_gate(question: Question) -> Limit:
    """Recovery draws on its budget instead, which the commit checks."""
    wish, room = question.wish, question.snapshot.room
    if wish.draw is not None:
        return Limit(len(wish.slots))
    return _limit(question, room, PendingCode.HEADROOM, (
        f"{question.snapshot.region} has {shown(room)} left beside what is kept for recovery",
        "wait until others use less, or add nodes",
    ))  # fmt: skip


GATES = (grant_gate, headroom_gate)


def _limit(question: Question, left: Triple, code: PendingCode, says: tuple[str, str]) -> Limit:
    wish = question.wish
    fits = min(
        max(0, have // asked) for have, asked in zip(left, question.asked, strict=True) if asked
    )
    if fits >= len(wish.slots):
        return Limit(len(wish.slots))
    has, remedy = says
    size = wish.spec.resources
    sentence = (
        f"{has}, which is enough for {fits:,} of {len(wish.slots):,} slots of {size}; {remedy}."
    )
    return Limit(fits, Pending(code=code, sentence=sentence))


def minus(left: Triple, right: Triple) -> Triple:
    return (left[0] - right[0], left[1] - right[1], left[2] - right[2])


def shown(amounts: Triple) -> str:
    """Amounts for a sentence; what has shrunk may have less than nothing left."""
    return str(Resources.of(*(max(0, amount) for amount in amounts)))
