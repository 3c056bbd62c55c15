"""One decision's working set: the request, the snapshot, and what placed slots have changed."""

from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from durable.model.overrides.effects import Gate
from durable.model.overrides.in_force import skipped_gates
from durable.model.placement.claims import Crash
from durable.model.policy.policy import Policy
from durable.model.work.workload import TopologySpread
from durable.scheduling.queue.crash_backoff import avoided_until
from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.columns import AmountColumns, Columns, Mask, Rows
from durable.scheduling.snapshot.region import Snapshot

# Filters and scores look at every row or at some; the same code serves both.
RowSelection = Rows | slice
Shares = NDArray[np.float64]
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
        # Gates that an override lets this work pass, as far as the policy lets go of them.
        self.skips = skipped_gates(request.overrides).intersection(
            policy.overridable_gates if policy is not None else ()
        )
        self.spread = TopologySpread() if Gate.SPREAD in self.skips else request.spec.spread
        self.requested = request.spec.resources.amounts
        self.free: AmountColumns = columns.capacity - columns.used
        # With one more replica on the node, over the dimensions that it declares.
        self.filled, self.uneven = self._fill()
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
        for crash in () if Gate.CRASHES in self.skips else request.crashes:
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

    def are_nodes(self, rows: RowSelection, nodes: Iterable[str]) -> Mask:
        """Which of the nodes have one of these names."""
        named = np.zeros_like(self.columns.live)
        named[_known_rows(self.snapshot, nodes)] = True
        return named[rows]

    def spread_over(self, eligible: Mask) -> None:
        """Sets which nodes, and so which zones, count when replicas are spread evenly."""
        self.zone_counts[:] = False
        self.zone_counts[self.columns.zone[eligible]] = True
        if self.spread.node_max_skew is not None:
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
        self._count(row, 1)
        if self._nodes_at_floor and self.on_node[row] == self.emptiest_node + 1:
            self._nodes_at_floor -= 1
            if not self._nodes_at_floor:
                self._find_floor()

    def put_back(self, row: int) -> None:
        """Takes one placed replica away again."""
        self._count(row, -1)
        self._find_floor()

    def _count(self, row: int, replicas: int) -> None:
        self.free[row] -= [amount * replicas for amount in self.requested]
        self.filled[row], self.uneven[row] = self._fill_of(row)
        self.on_node[row] += replicas
        self.in_zone[self.columns.zone[row]] += replicas

    def _fill(self) -> tuple[Shares, Shares]:
        """With one more replica on each node: the mean share in use, and how far they lie apart.

        A dimension of which a node has nothing says nothing about how full the node is. One that is
        requested is had by every node that matters: no other is a candidate.
        """
        shares = [
            1 - (self.free[:, d] - amount) / np.maximum(self.columns.capacity[:, d], 1)
            for d, amount in enumerate(self.requested)
            if amount
        ]
        total, least, most = shares[0].copy(), shares[0].copy(), shares[0].copy()
        for share in shares[1:]:
            total += share
            np.minimum(least, share, out=least)
            np.maximum(most, share, out=most)
        dimensions = np.full(len(total), float(len(shares)))
        for d, amount in enumerate(self.requested):
            having = np.flatnonzero(self.columns.capacity[:, d]) if not amount else ()
            if len(having):
                share = 1 - self.free[having, d] / self.columns.capacity[having, d]
                dimensions[having] += 1
                total[having] += share
                least[having] = np.minimum(least[having], share)
                most[having] = np.maximum(most[having], share)
        return total / dimensions, most - least

    def _fill_of(self, row: int) -> tuple[float, float]:
        """The same of one node, to the last bit, and without the cost of arrays."""
        free: list[int] = self.free[row].tolist()
        capacity: list[int] = self.columns.capacity[row].tolist()
        amounts = list(zip(self.requested, free, capacity, strict=True))
        shares = [1 - (left - amount) / (has or 1) for amount, left, has in amounts if amount]
        shares += [1 - left / has for amount, left, has in amounts if has and not amount]
        # Added up one by one, as arrays are: sum() would round otherwise.
        return reduce(add, shares) / len(shares), max(shares) - min(shares)

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
