"""A filter: one reason why a node may not take the work, with its code and its words."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet

# Which of the nodes are rejected; None when the reason does not concern this request at all.
Rejects = Callable[[WorkingSet, RowSelection], Mask | None]
# How many of the rejected nodes have which particular, such as the taint or the missing label.
Words = Callable[[WorkingSet, Rows], Counter[str]]


@dataclass(frozen=True, slots=True)
class Filter:
    code: str
    # What the work waits for when the nodes that came closest were rejected by this filter.
    pending: PendingCode
    rejects: Rejects
    words: Words


def same_words(words: str) -> Words:
    """The same words for every node."""

    def count(_working: WorkingSet, rows: Rows) -> Counter[str]:
        return Counter({words: len(rows)})

    return count


def count_by_id(ids: NDArray[np.int32], words: Callable[[int], str]) -> Counter[str]:
    """Nodes counted by the words for the id that each of them has."""
    counted: Counter[str] = Counter()
    for id, count in zip(*np.unique(ids, return_counts=True), strict=True):
        counted[words(int(id))] += int(count)
    return counted


def every_node(working: WorkingSet, rows: RowSelection) -> Mask:
    return np.ones_like(working.columns.live[rows])
