"""Why slots wait, in one reason and one sentence that says what would end it."""

from collections import Counter
from collections.abc import Iterable

from durable.model.pending import Pending, PendingCode
from durable.model.resources import Resources
from durable.scheduling.account import Account
from durable.scheduling.filters import size
from durable.scheduling.gates import Limit
from durable.scheduling.proposal import Rejection
from durable.scheduling.question import Question
from durable.scheduling.snapshot.columns import Amounts

# A sentence holds 500 characters; what stands around the account needs less than the rest.
_ACCOUNT_LENGTH = 240

_NEXT = {
    PendingCode.REGION_FENCED: "place it elsewhere, or wait for the failback",
    PendingCode.REQUIREMENTS: "change its requirements, or add nodes that meet them",
    PendingCode.TAINTED: "tolerate the taint, or add nodes without it",
    PendingCode.NODES_UNAVAILABLE: "wait for nodes to come back, or add some",
    PendingCode.CAPACITY: "wait for room, ask for less, or add nodes",
    PendingCode.CRASHED: "wait until it may go back there, or add nodes",
    PendingCode.SPREAD: "wait for room where it may go, relax its spread, or add nodes there",
}


def why_unplaced(question: Question, limit: Limit, placed: int, account: Account) -> Pending:
    """The reason for the slots that got no node; the account is of the first of them."""
    nodes = _why_refused(question, placed, account)
    if limit.pending is None or placed < limit.slots:
        return nodes
    # A larger grant would not help where no node could ever take the work.
    is_hopeless = not account.feasible and not nodes.waiting_helps
    return nodes if is_hopeless and limit.pending.waiting_helps else limit.pending


def why_gang_waits(question: Question, could: int, why: Pending | None) -> Pending:
    """The reason for a gang that could not be placed far enough, and so not at all."""
    if why is not None and (not why.waiting_helps or why.code is PendingCode.REGION_FENCED):
        return why
    wish = question.wish
    beside = f" beside {len(wish.standing):,} that stand" if wish.standing else ""
    begins = (
        f"A gang of {wish.spec.gang_size:,} starts together or not at all, and {could:,} of "
        f"{len(wish.slots):,} slots could be placed{beside}"
    )
    because = f": {why.sentence}" if why is not None else "; ask for more slots at once."
    return Pending(code=PendingCode.GANG, sentence=_cut(begins + because))


def told(rejections: Iterable[Rejection], nodes: int) -> str:
    """An account on one line: `4,981 of 5,000 nodes: 3,000 insufficient gpu, ...`."""
    counted: Counter[str] = Counter()
    for line in rejections:
        counted[line.words] += line.nodes
    parts, rest = list[str](), counted.total()
    for words, count in sorted(counted.items(), key=lambda line: (-line[1], line[0])):
        part = f"{count:,} {words}"
        if len(", ".join([*parts, part])) > _ACCOUNT_LENGTH:
            break
        parts.append(part)
        rest -= count
    if rest:
        parts.append(f"{rest:,} for other reasons")
    return f"{counted.total():,} of {nodes:,} nodes: {', '.join(parts)}"


def _why_refused(question: Question, placed: int, account: Account) -> Pending:
    closest, wish = account.closest, question.wish
    if closest is None:
        return Pending(
            code=PendingCode.NODES_UNAVAILABLE,
            sentence=f"{wish.region} has no nodes; wait for their agents, or add some.",
        )
    capacity = question.columns.capacity[closest.rows]
    slots = len(wish.slots)
    what = f"{slots - placed:,} of {slots:,} slots of {wish.tenant}/{wish.workload}"
    line = told(account.rejections(question), len(question.snapshot))
    return why_closest_refused(what, wish.spec.resources, closest.by.pending, capacity, line)


def why_closest_refused(
    what: str, asked: Resources, code: PendingCode, capacity: Amounts, account_line: str
) -> Pending:
    """The reason of the nodes that came closest; `capacity` is what each of them has in all."""
    if code is PendingCode.NEVER_FITS:
        lacks, remedy = _never_fits(asked, capacity)
    else:
        lacks, remedy = "", _NEXT[code]
    sentence = f"No node for {what}; {lacks}{account_line}; {remedy}."
    return Pending(code=code, sentence=_cut(sentence))


def _never_fits(asked: Resources, capacity: Amounts) -> tuple[str, str]:
    """Which dimension no node has enough of, and the largest there is, among those allowed."""
    for dimension, amount in enumerate(asked.amounts):
        largest = int(capacity[:, dimension].max())
        if largest < amount:
            wanted, has = size.show(dimension, amount), size.show(dimension, largest)
            return (
                f"none it may use could ever hold {wanted}, the largest has {has}; ",
                "ask for less, or add larger nodes",
            )
    return (
        f"none it may use could ever hold {asked} at once; ",
        "ask for less, or add nodes of another shape",
    )


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= 500 else sentence[:497] + "..."
