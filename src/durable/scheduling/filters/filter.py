"""What a filter is: one reason why a node may not take the work, with its code and its words."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from durable.model.pending_reasons import PendingCode
from durable.scheduling.question import Question, Some
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.rows import Rows

# Where a node is refused; None when the reason does not concern this wish at all.
Refuses = Callable[[Question, Some], Mask | None]
# How many of the refused nodes go by which words, with the particular: which taint, which label.
Words = Callable[[Question, Rows], Counter[str]]


@dataclass(frozen=True, slots=True)
class Filter:
    code: str
    # What the work waits for when the nodes that came closest were refused for this.
    pending: PendingCode
    refuses: Refuses
    words: Words


def says(words: str) -> Words:
    """The same words for every node."""

    def count(_question: Question, rows: Rows) -> Counter[str]:
        return Counter({words: len(rows)})

    return count


def by_number(numbers: NDArray[np.int32], name: Callable[[int], str]) -> Counter[str]:
    """Nodes counted by what the number of each one stands for."""
    counted: Counter[str] = Counter()
    for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
        counted[name(int(number))] += int(count)
    return counted
