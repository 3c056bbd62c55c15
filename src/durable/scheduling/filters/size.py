"""Whether one replica fits: into the node at all, and into what is free of it now."""

from collections import Counter

import numpy as np

from durable.model.amounts import DIMENSION_NAMES, show_dimension
from durable.model.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, says
from durable.scheduling.question import Question, Some
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.rows import Rows


def _too_small(question: Question, rows: Some) -> Mask:
    capacity = question.columns.capacity
    small = np.zeros_like(question.columns.live[rows])
    for dimension, amount in enumerate(question.asked):
        if amount:
            small |= capacity[rows, dimension] < amount
    return small


def _too_small_words(question: Question, rows: Rows) -> Counter[str]:
    counted: Counter[str] = Counter()
    for dimension, amount in enumerate(question.asked):
        small = question.columns.capacity[rows, dimension] < amount
        if small.any():
            counted[f"too small for {show_dimension(dimension, amount)}"] = int(
                np.count_nonzero(small)
            )
            rows = rows[~small]
    return counted


def _insufficient(dimension: int) -> Filter:
    def refuses(question: Question, rows: Some) -> Mask | None:
        amount = question.asked[dimension]
        return question.free[rows, dimension] < amount if amount else None

    word = DIMENSION_NAMES[dimension]
    return Filter(
        f"insufficient_{word}", PendingCode.CAPACITY, refuses, says(f"insufficient {word}")
    )


EVER = Filter("never_fits", PendingCode.NEVER_FITS, _too_small, _too_small_words)
NOW = tuple(_insufficient(dimension) for dimension in range(len(DIMENSION_NAMES)))
