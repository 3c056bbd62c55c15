"""Why slots wait: the one reason for all that found no node, with its numbers."""

from collections import Counter
from collections.abc import Iterable

from durable.model.amounts import at_least_nothing
from durable.model.pending import Pending, show_rejections
from durable.model.pending_reasons import (
    MAX_REJECTIONS,
    Gang,
    NoNode,
    PendingCode,
    RejectedNodes,
)
from durable.model.resources import Resources
from durable.scheduling.account import Account
from durable.scheduling.gates import Limit
from durable.scheduling.proposal import Rejection
from durable.scheduling.question import Question
from durable.scheduling.snapshot.columns import AmountColumns


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
    gang = Gang(
        size=wish.spec.gang_size,
        slots=len(wish.slots),
        placeable=could,
        live=len(wish.standing),
        because=why and why.reason(),
    )
    return Pending.because(PendingCode.GANG, gang)


def told(rejections: Iterable[Rejection], nodes: int) -> str:
    """An account on one line: `4,981 of 5,000 nodes: 3,000 insufficient gpu, ...`."""
    counted = Counter[str]()
    for line in rejections:
        counted[line.words] += line.nodes
    return show_rejections(counted, nodes)


def most_frequent(rejections: Iterable[Rejection]) -> tuple[RejectedNodes, ...]:
    """What travels with the reason; the evidence of the decision has all of it."""
    counted = Counter[tuple[str, str]]()
    for line in rejections:
        counted[line.code, line.words] += line.nodes
    ordered = sorted(counted.items(), key=lambda line: (-line[1], line[0]))
    return tuple(
        RejectedNodes(code=code, words=words, nodes=nodes)
        for (code, words), nodes in ordered[:MAX_REJECTIONS]
    )


def largest_of(amounts: AmountColumns) -> Resources:
    """By dimension, the most that any node has; a node that shrank may have less than nothing."""
    cpu_millis, memory_mib, gpus = map(int, amounts.max(axis=0))
    return Resources.of(*at_least_nothing((cpu_millis, memory_mib, gpus)))


def _why_refused(question: Question, placed: int, account: Account) -> Pending:
    closest, wish = account.closest, question.wish
    code = PendingCode.NODES_UNAVAILABLE if closest is None else closest.by.pending
    has = question.columns.capacity if code is PendingCode.NEVER_FITS else question.free
    rejections = account.rejections(question)
    no_node = NoNode(
        region=wish.region,
        workload=f"{wish.tenant}/{wish.workload}",
        unplaced=len(wish.slots) - placed,
        slots=len(wish.slots),
        nodes=len(question.snapshot),
        rejections=most_frequent(rejections),
        rejected=sum(line.nodes for line in rejections),
        requested=wish.spec.resources,
        largest=None if closest is None else largest_of(has[closest.rows]),
    )
    return Pending.because(code, no_node)
