"""How replicas of one workload may lie beside each other: apart, evenly, not where one crashed."""

from collections import Counter

from durable.model.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, by_number
from durable.scheduling.question import Question, Some
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.rows import Rows


def _holds_enough(question: Question, rows: Some) -> Mask | None:
    most = question.wish.spec.spread.max_per_node
    return None if most is None else question.on_node[rows] >= most


def _enough_words(question: Question, rows: Rows) -> Counter[str]:
    most = question.wish.spec.spread.max_per_node
    return Counter({f"at its {most} per node": len(rows)})


def _crashed_there(question: Question, rows: Some) -> Mask | None:
    return None if question.barred is None else question.barred[rows]


def _crash_words(question: Question, rows: Rows) -> Counter[str]:
    ends = map(question.barred_until, map(int, rows))
    return Counter(
        "it crashed there" if end is None else f"it crashed there, avoided until {end:%H:%M:%S}Z"
        for end in ends
    )


def closed_zones(question: Question) -> Mask | None:
    """The zones that one more replica would put too far ahead of the emptiest."""
    skew = question.wish.spec.spread.zone_max_skew
    return None if skew is None else question.in_zone + 1 - question.emptiest_zone > skew


def _zone_ahead(question: Question, rows: Some) -> Mask | None:
    closed = closed_zones(question)
    return None if closed is None else closed[question.columns.zone[rows]]


def _zone_ahead_words(question: Question, rows: Rows) -> Counter[str]:
    names = question.snapshot.zones.things
    skew = question.wish.spec.spread.zone_max_skew
    zones = question.columns.zone[rows]
    return by_number(zones, lambda zone: f"zone {names[zone]} at its skew of {skew}")


def _node_ahead(question: Question, rows: Some) -> Mask | None:
    skew = question.wish.spec.spread.node_max_skew
    return None if skew is None else question.on_node[rows] + 1 - question.emptiest_node > skew


def _node_ahead_words(question: Question, rows: Rows) -> Counter[str]:
    skew = question.wish.spec.spread.node_max_skew
    return Counter({f"at its node skew of {skew}": len(rows)})


MAX_PER_NODE = Filter("max_per_node", PendingCode.SPREAD, _holds_enough, _enough_words)
CRASH_PAIR = Filter("crashed", PendingCode.CRASHED, _crashed_there, _crash_words)
ZONE_SPREAD = Filter("zone_skew", PendingCode.SPREAD, _zone_ahead, _zone_ahead_words)
NODE_SPREAD = Filter("node_skew", PendingCode.SPREAD, _node_ahead, _node_ahead_words)
