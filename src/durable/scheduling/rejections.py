"""Which nodes were rejected and why: each node once, under the first filter that rejected it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from durable.model.pending_reasons import Rejection
from durable.scheduling.filters import CANDIDATE, ELIGIBLE, FILTERS, LASTING, SPREAD
from durable.scheduling.filters.filter import Filter
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.rows import Rows
from durable.scheduling.working_set import ALL_ROWS, WorkingSet

# A fleet where every node has a taint of its own must not fill a record with them.
_WORDS_PER_FILTER = 8


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """The nodes that one filter was the first to reject."""

    by: Filter
    rows: Rows


@dataclass(frozen=True, slots=True)
class Rejections:
    """What the filters rejected, in their order, and which nodes remain."""

    remaining: Mask
    rejected: tuple[RejectedRows, ...]

    @property
    def feasible(self) -> int:
        return int(np.count_nonzero(self.remaining))

    @property
    def closest(self) -> RejectedRows | None:
        """The nodes that came closest to taking the work."""
        return self.rejected[-1] if self.rejected else None

    def by(self, filter: Filter) -> Rows:
        """The nodes that this filter rejected."""
        rows = [each.rows for each in self.rejected if each.by is filter]
        return np.concatenate(rows) if rows else np.empty(0, dtype=np.intp)

    def counted(self, working: WorkingSet) -> tuple[Rejection, ...]:
        """The rejections in words, the most frequent first within each filter."""
        return tuple(line for each in self.rejected for line in _lines(working, each))


def filter_nodes(working: WorkingSet) -> tuple[Mask, Rejections]:
    """The candidates, which spread may still close for a while, and every node's rejection."""
    eligible = _apply(working, ELIGIBLE, working.columns.live)
    working.spread_over(eligible.remaining)
    candidates = _apply(working, CANDIDATE, eligible.remaining)
    spread = _apply(working, SPREAD, candidates.remaining)
    rejected = eligible.rejected + candidates.rejected + spread.rejected
    return candidates.remaining, Rejections(spread.remaining, rejected)


def filter_again(working: WorkingSet) -> Rejections:
    """Every node's rejection after some slots were placed."""
    return _apply(working, FILTERS, working.columns.live)


def filter_lasting(working: WorkingSet) -> Rejections:
    """The rejections that no waiting mends."""
    return _apply(working, LASTING, working.columns.live)


def _apply(working: WorkingSet, filters: Iterable[Filter], nodes: Mask) -> Rejections:
    remaining, rejected = nodes, list[RejectedRows]()
    for each in filters:
        rejects = each.rejects(working, ALL_ROWS)
        if rejects is None:
            continue
        newly = remaining & rejects
        if newly.any():
            rejected.append(RejectedRows(each, np.flatnonzero(newly)))
            remaining = remaining & ~rejects
    return Rejections(remaining, tuple(rejected))


def _lines(working: WorkingSet, rejected: RejectedRows) -> Iterable[Rejection]:
    counted = rejected.by.words(working, rejected.rows)
    # By words where counts are equal: the order in which nodes arrived must not show.
    lines = sorted(counted.items(), key=lambda line: (-line[1], line[0]))
    rest = sum(count for _, count in lines[_WORDS_PER_FILTER:])
    if rest:
        lines = [*lines[:_WORDS_PER_FILTER], (f"{rejected.by.code} of other kinds", rest)]
    return (Rejection(code=rejected.by.code, nodes=count, words=words) for words, count in lines)
