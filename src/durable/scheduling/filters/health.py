"""Whether a node may be given work now: ready, not cordoned, and heard of at this epoch."""

from collections import Counter

import numpy as np

from durable.model.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, says
from durable.scheduling.question import Question, Some
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.rows import Rows


def _not_ready(question: Question, rows: Some) -> Mask:
    return ~question.columns.ready[rows]


def _cordoned(question: Question, rows: Some) -> Mask:
    return question.columns.cordoned[rows]


def _expired(question: Question, rows: Some) -> Mask:
    return question.columns.lease_expires_at[rows] <= question.snapshot.now


def _of_another_epoch(question: Question, rows: Some) -> Mask:
    return question.columns.lease_epoch[rows] != question.snapshot.epoch


def _not_fresh(question: Question, rows: Some) -> Mask:
    return _expired(question, rows) | _of_another_epoch(question, rows)


def _lease_words(question: Question, rows: Rows) -> Counter[str]:
    expired = int(np.count_nonzero(_expired(question, rows)))
    counted = {"lease expired": expired, "not back since the fence": len(rows) - expired}
    return Counter({words: count for words, count in counted.items() if count})


READY = Filter("not_ready", PendingCode.NODES_UNAVAILABLE, _not_ready, says("not ready"))
CORDON = Filter("cordoned", PendingCode.NODES_UNAVAILABLE, _cordoned, says("cordoned"))
LEASE = Filter("stale", PendingCode.NODES_UNAVAILABLE, _not_fresh, _lease_words)
