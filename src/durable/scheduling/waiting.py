"""Why slots wait, in one reason and one sentence that says what would end it."""

from collections.abc import Iterable

from durable.model.pending import Pending, PendingCode
from durable.scheduling.account import Account, Refused
from durable.scheduling.filters import size
from durable.scheduling.gates import Limit
from durable.scheduling.proposal import Rejection
from durable.scheduling.question import Question

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
    nodes = _why_refused(question, account)
    if limit.pending is None or placed < limit.slots:
        return nodes
    # Whatever the grant, nothing is placed where no node could ever take it.
    is_hopeless = account.closest is not None and not account.feasible and not nodes.waiting_helps
    if is_hopeless and limit.pending.waiting_helps:
        return nodes
    return limit.pending


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


def why_never(question: Question, account: Account) -> Pending | None:
    """The reason why no waiting would help, if there is one."""
    if account.feasible or account.closest is None:
        return None
    return _why_refused(question, account)


def told(rejections: Iterable[Rejection], nodes: int) -> str:
    """An account on one line: `4,981 of 5,000 nodes: 3,000 insufficient gpu, ...`."""
    lines = sorted(rejections, key=lambda line: (-line.nodes, line.words))
    refused = sum(line.nodes for line in lines)
    parts, rest = list[str](), refused
    for line in lines:
        part = f"{line.nodes:,} {line.words}"
        if len(", ".join([*parts, part])) > _ACCOUNT_LENGTH:
            break
        parts.append(part)
        rest -= line.nodes
    if rest:
        parts.append(f"{rest:,} for other reasons")
    return f"{refused:,} of {nodes:,} nodes: {', '.join(parts)}"


def _why_refused(question: Question, account: Account) -> Pending:
    wish, snapshot = question.wish, question.snapshot
    closest = account.closest
    if closest is None:
        return Pending(
            code=PendingCode.NODES_UNAVAILABLE,
            sentence=f"{snapshot.region} has no nodes; wait for their agents, or add some.",
        )
    code = closest.by.pending
    if code is PendingCode.NEVER_FITS:
        begins, remedy = _never_fits(question, closest)
    else:
        begins = f"No node for {wish.tenant}/{wish.workload}"
        remedy = _NEXT[code]
    account_line = told(account.rejections(question), len(snapshot))
    return Pending(code=code, sentence=_cut(f"{begins}; {account_line}; {remedy}."))


def _never_fits(question: Question, refused: Refused) -> tuple[str, str]:
    """Which dimension no node has enough of, and the largest there is, among those allowed."""
    capacity = question.columns.capacity[refused.rows]
    for dimension, amount in enumerate(question.asked):
        largest = int(capacity[:, dimension].max())
        if largest < amount:
            return (
                f"No node that it may use could ever hold {size.show(dimension, amount)}: "
                f"the largest has {size.show(dimension, largest)}",
                "ask for less, or add larger nodes",
            )
    return (
        f"No node that it may use could ever hold {question.wish.spec.resources} at once",
        "ask for less, or add nodes of another shape",
    )


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= 500 else sentence[:497] + "..."
