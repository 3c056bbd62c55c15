"""One replica must fit into the node: into all of it ever, and into what is free of it now."""

from collections import Counter

import numpy as np

from durable.model.placement.pending_reasons import PendingCode
from durable.model.resources import DIMENSION_NAMES, show_dimension
from durable.scheduling.filters.filter import Filter, same_words
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _too_small(working: WorkingSet, rows: RowSelection) -> Mask:
    capacity = working.columns.capacity
    small = np.zeros_like(working.columns.live[rows])
    for dimension, amount in enumerate(working.requested):
        if amount:
            small |= capacity[rows, dimension] < amount
    return small


def _too_small_words(working: WorkingSet, rows: Rows) -> Counter[str]:
    counted: Counter[str] = Counter()
    for dimension, amount in enumerate(working.requested):
        small = working.columns.capacity[rows, dimension] < amount
        if small.any():
            words = f"too small for {show_dimension(dimension, amount)}"
            counted[words] = int(np.count_nonzero(small))
            rows = rows[~small]
    return counted


def _insufficient(dimension: int) -> Filter:
    def rejects(working: WorkingSet, rows: RowSelection) -> Mask | None:
        amount = working.requested[dimension]
        return working.free[rows, dimension] < amount if amount else None

    name = DIMENSION_NAMES[dimension]
    return Filter(
        f"insufficient_{name}", PendingCode.CAPACITY, rejects, same_words(f"insufficient {name}")
    )


NEVER_FITS = Filter("never_fits", PendingCode.NEVER_FITS, _too_small, _too_small_words)
INSUFFICIENT = tuple(_insufficient(dimension) for dimension in range(len(DIMENSION_NAMES)))
