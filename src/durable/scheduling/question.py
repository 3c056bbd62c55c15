"""One decision's working state: what is asked, and what the slots placed so far have changed."""

from collections.abc import Iterable
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from durable.model.placement import Crash
from durable.model.policy import Policy
from durable.scheduling.crash_backoff import avoided_until
from durable.scheduling.snapshot.columns import AmountColumns, Columns, Mask
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.snapshot.rows import Rows
from durable.scheduling.wish import Wish

# Filters and scores are asked about every row or about some; the same code answers both.
Some = Rows | slice
Shares = NDArray[np.float64]
EVERY_ROW = slice(None)


class Question:
    """The wish laid over the snapshot, whose own arrays a decision never changes."""

    def __init__(self, snapshot: Snapshot, wish: Wish, policy: Policy | None = None) -> None:
        its = snapshot.columns
        self.snapshot = snapshot
        self.wish = wish
        self._policy = policy
        self.asked = wish.spec.resources.amounts
        self.free: AmountColumns = its.capacity - its.used
        # Of cpu and of memory, how much would be in use with one more replica; 1 is all of it.
        self.would_use = [self._would_use(dimension, EVERY_ROW) for dimension in (0, 1)]
        # Replicas of this workload, standing or placed by this decision.
        rows = _known_rows(snapshot, (standing.node for standing in wish.standing))
        self.on_node = np.bincount(rows, minlength=len(its)).astype(np.int64)
        zones = len(snapshot.zones)
        self.in_zone = np.bincount(its.zone[rows], minlength=zones).astype(np.int64)
        # Set once it is known who is eligible; see `spread_over`.
        self.zone_counts = np.zeros(zones, dtype=np.bool_)
        self.emptiest_node = 0
        self._emptiest_left = 0
        self._eligible = its.live
        # By slot, and then by row. The last crash counts.
        self._crashed_on: dict[int, dict[int, Crash]] = {}
        for crash in wish.crashes:
            row = snapshot.row(crash.node)
            if row is not None:
                self._crashed_on.setdefault(crash.slot, {})[row] = crash
        self._asked_of: tuple[int, ...] = ()
        self.barred: Mask | None = None
        self.bar(wish.slots)

    @property
    def columns(self) -> Columns:
        return self.snapshot.columns

    def spread_over(self, eligible: Mask) -> None:
        """Says which nodes, and so which zones, count when replicas are to lie evenly."""
        self.zone_counts[:] = False
        self.zone_counts[self.columns.zone[eligible]] = True
        if self.wish.spec.spread.node_max_skew is not None:
            self._eligible = eligible
            self._find_floor()

    def crashed_on(self, slot: int) -> set[int]:
        """The rows to which a slot does not go back yet."""
        return set(self._crashed_on.get(slot, ()))

    def barred_until(self, row: int) -> datetime | None:
        """When the first of the slots in question may go back to a barred row."""
        if self._policy is None:
            return None
        crashes = (self._crashed_on[slot][row] for slot in self._asked_of)
        return min(avoided_until(crash, self._policy) for crash in crashes)

    def bar(self, slots: Iterable[int]) -> None:
        """From now on the question is of these slots: bars where every one of them has crashed."""
        self._asked_of = tuple(slots)
        rows = set[int].intersection(*map(self.crashed_on, self._asked_of))
        self.barred = None
        if rows:
            self.barred = np.zeros(len(self.columns), dtype=np.bool_)
            self.barred[list(rows)] = True

    def take(self, row: int) -> None:
        """Places one replica: what the next one sees is changed by it."""
        self.free[row] -= self.asked
        for dimension, shares in enumerate(self.would_use):
            shares[row] = self._would_use(dimension, row)
        self.on_node[row] += 1
        self.in_zone[self.columns.zone[row]] += 1
        if self._emptiest_left and self.on_node[row] == self.emptiest_node + 1:
            self._emptiest_left -= 1
            if not self._emptiest_left:
                self._find_floor()

    @property
    def emptiest_zone(self) -> int:
        counts = self.in_zone[self.zone_counts]
        return int(counts.min()) if len(counts) else 0

    def _would_use(self, dimension: int, rows: slice | int) -> Shares:
        capacity = np.maximum(self.columns.capacity[rows, dimension], 1)
        left = self.free[rows, dimension] - self.asked[dimension]
        return np.minimum(1 - left / capacity, 1)

    def _find_floor(self) -> None:
        """How many replicas the emptiest eligible node has, and how many nodes have just that."""
        counts = self.on_node[self._eligible]
        if len(counts):
            self.emptiest_node = int(counts.min())
            self._emptiest_left = int(np.count_nonzero(counts == self.emptiest_node))


def _known_rows(snapshot: Snapshot, nodes: Iterable[str]) -> Rows:
    """Rows of the nodes, one for each mention; a node that is gone counts for nothing here."""
    found = (snapshot.row(node) for node in nodes)
    return np.fromiter((row for row in found if row is not None), dtype=np.intp)
