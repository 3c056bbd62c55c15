"""One decision's working set: the request, the snapshot, and what placed slots have changed."""

from collections.abc import Iterable
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from durable.model.claims import Crash
from durable.model.policy import Policy
from durable.scheduling.crash_backoff import avoided_until
from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.columns import AmountColumns, Columns, Mask, Rows
from durable.scheduling.snapshot.region import Snapshot

# Filters and scores look at every row or at some; the same code serves both.
RowSelection = Rows | slice
UsedRatios = NDArray[np.float64]
ALL_ROWS = slice(None)


class WorkingSet:
    """Changes with every placed slot; the snapshot's own arrays never do."""

    def __init__(
        self, snapshot: Snapshot, request: PlacementRequest, policy: Policy | None = None
    ) -> None:
        columns = snapshot.columns
        self.snapshot = snapshot
        self.request = request
        self._policy = policy
        self.requested = request.spec.resources.amounts
        self.free: AmountColumns = columns.capacity - columns.used
        # Of cpu and of memory, how much would be in use with one more replica; 1 is all of it.
        self.would_use = [self._would_use(dimension, ALL_ROWS) for dimension in (0, 1)]
        # Replicas of this workload, live or placed by this decision.
        rows = _known_rows(snapshot, (placed.node for placed in request.live))
        self.on_node = np.bincount(rows, minlength=len(columns)).astype(np.int64)
        zones = len(snapshot.zones)
        self.in_zone = np.bincount(columns.zone[rows], minlength=zones).astype(np.int64)
        # Set once it is known who is eligible; see `spread_over`.
        self.zone_counts = np.zeros(zones, dtype=np.bool_)
        self.emptiest_node = 0
        self._nodes_at_floor = 0
        self._eligible = columns.live
        # By slot, and then by row. The last crash counts.
        self._crashed_on: dict[int, dict[int, Crash]] = {}
        for crash in request.crashes:
            row = snapshot.row(crash.node)
            if row is not None:
                self._crashed_on.setdefault(crash.slot, {})[row] = crash
        self._considered: tuple[int, ...] = ()
        self.banned: Mask | None = None
        self.consider(request.slots)

    @property
    def columns(self) -> Columns:
        return self.snapshot.columns

    @property
    def emptiest_zone(self) -> int:
        counts = self.in_zone[self.zone_counts]
        return int(counts.min()) if len(counts) else 0

    def in_zones(self, rows: RowSelection, zones: Iterable[str]) -> Mask:
        """Which of the nodes are in one of these zones."""
        ids = [self.snapshot.zones.find(zone) for zone in zones]
        return np.isin(self.columns.zone[rows], ids)

    def spread_over(self, eligible: Mask) -> None:
        """Sets which nodes, and so which zones, count when replicas are spread evenly."""
        self.zone_counts[:] = False
        self.zone_counts[self.columns.zone[eligible]] = True
        if self.request.spec.spread.node_max_skew is not None:
            self._eligible = eligible
            self._find_floor()

    def crashed_on(self, slot: int) -> set[int]:
        """The rows to which a slot does not go back yet."""
        return set(self._crashed_on.get(slot, ()))

    def consider(self, slots: Iterable[int]) -> None:
        """Bans, from now on, the nodes on which every one of these slots has crashed."""
        self._considered = tuple(slots)
        rows = set[int].intersection(*map(self.crashed_on, self._considered))
        self.banned = None
        if rows:
            self.banned = np.zeros(len(self.columns), dtype=np.bool_)
            self.banned[list(rows)] = True

    def banned_until(self, row: int) -> datetime:
        """When the first of the considered slots may go back to a banned row."""
        assert self._policy is not None, "without a policy no crash bans anything"
        crashes = (self._crashed_on[slot][row] for slot in self._considered)
        return min(avoided_until(crash, self._policy) for crash in crashes)

    def take(self, row: int) -> None:
        """Places one replica: what the next one sees is changed by it."""
        self.free[row] -= self.requested
        for dimension, ratios in enumerate(self.would_use):
            ratios[row] = self._would_use(dimension, row)
        self.on_node[row] += 1
        self.in_zone[self.columns.zone[row]] += 1
        if self._nodes_at_floor and self.on_node[row] == self.emptiest_node + 1:
            self._nodes_at_floor -= 1
            if not self._nodes_at_floor:
                self._find_floor()

    def _would_use(self, dimension: int, rows: slice | int) -> UsedRatios:
        capacity = np.maximum(self.columns.capacity[rows, dimension], 1)
        left = self.free[rows, dimension] - self.requested[dimension]
        return np.minimum(1 - left / capacity, 1)

    def _find_floor(self) -> None:
        """How many replicas the emptiest eligible node has, and how many nodes have just that."""
        counts = self.on_node[self._eligible]
        if len(counts):
            self.emptiest_node = int(counts.min())
            self._nodes_at_floor = int(np.count_nonzero(counts == self.emptiest_node))


def _known_rows(snapshot: Snapshot, nodes: Iterable[str]) -> Rows:
    """Rows of the nodes, one for each mention; a node that is gone counts for nothing here."""
    found = (snapshot.row(node) for node in nodes)
    return np.fromiter((row for row in found if row is not None), dtype=np.intp)
