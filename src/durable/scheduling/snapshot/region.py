"""A region as a decision sees it: arrays that its cache keeps up to date in place.

One thread owns a snapshot; a decision reads it without waiting, so nothing changes meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from durable.model.overrides.in_force import RegionalOverride
from durable.model.resources import NOTHING, Amounts
from durable.model.states import NodeState
from durable.scheduling.snapshot.columns import (
    NEVER,
    NO_ID,
    NO_LEASE,
    Columns,
    Ids,
    InternTable,
    Mask,
    NodeRows,
    Rows,
)

LabelSet = frozenset[tuple[str, str]]
TaintSet = tuple[tuple[str, str, str], ...]

# Sets that no node has any more are dropped when they are this many more than twice the nodes.
_SETS_TO_SPARE = 1_024


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node as it was read; moments are seconds since the epoch by the database's clock.

    Plain values instead of `model.capacity.Node`: a read makes tens of thousands of these, and the
    snapshot takes them apart into arrays. A node that is rebuilt at an old version has no lease.
    """

    node: str
    zone: str
    pool: str
    capacity: Amounts
    used: Amounts
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    dedicated_to: str | None
    state: str
    cordon_reason: str | None
    lease_epoch: int | None
    lease_expires_at: float | None
    # Devices that nobody holds and nobody can use.
    unhealthy_gpus: int = 0
    cordoned_by: str | None = None

    @property
    def ready(self) -> bool:
        return self.state == NodeState.READY

    @property
    def cordoned(self) -> bool:
        return self.cordon_reason is not None


@dataclass(frozen=True, slots=True)
class EmergencyDraw:
    """What a tenant may use beside its grant until a moment, and what it uses of that."""

    tenant: str
    amount: Amounts
    used: Amounts
    # Seconds since the epoch.
    expires_at: float


class Snapshot:
    """The nodes, grants and room of one region, as of one version and one moment."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.epoch = 1
        self.version = 0
        self.is_open = True
        self.now = 0.0
        self.age_seconds = 0.0
        # By tenant: what of its grant here is for work, and what runs on it.
        self.grants: dict[str, tuple[Amounts, Amounts]] = {}
        # What ordinary work may still take beside what is kept for recovery.
        self.room: Amounts = NOTHING
        # Those that nobody has ended; see `work_overrides` for those that are in force.
        self.overrides: tuple[RegionalOverride, ...] = ()
        # Those that were in force when the region was read.
        self.draws: tuple[EmergencyDraw, ...] = ()
        self.columns = Columns.of(0)
        self.zones = InternTable[str]()
        self.tenants = InternTable[str]()
        self.label_sets = InternTable[LabelSet]()
        self.taint_sets = InternTable[TaintSet]()
        self._nodes = NodeRows()

    @classmethod
    def empty(cls, region: str) -> "Snapshot":
        return cls(region)

    def __len__(self) -> int:
        return len(self._nodes)

    def name(self, row: int) -> str:
        return self._nodes.name(row)

    def row(self, node: str) -> int | None:
        return self._nodes.find(node)

    def rows_by_name(self) -> Rows:
        return self._nodes.by_name()

    def fresh(self) -> Mask:
        """Where the node has renewed its lease at this epoch, so that a commit will take it."""
        leases = self.columns
        return (leases.lease_epoch == self.epoch) & (leases.lease_expires_at > self.now)

    def put(self, nodes: Iterable[NodeFacts]) -> bool:
        """Adds or replaces nodes; whether waiting work may fit now that did not before."""
        given = list(nodes)
        self._make_room(sum(facts.node not in self._nodes for facts in given))
        # Every one is written, even if the first is already news.
        better = [self._put(facts) for facts in given]
        self._drop_unused_sets()
        return any(better)

    def remove(self, nodes: Iterable[str]) -> None:
        """Forgets nodes; unknown names are no error, because removals come twice."""
        for node in nodes:
            row = self._nodes.drop(node)
            if row is not None:
                self.columns.live[row] = False

    def renew(self, leases: Mapping[str, tuple[int, float]]) -> bool:
        """Takes leases as `node -> (epoch, expires_at)`; see `renew_many`."""
        epochs = np.fromiter((epoch for epoch, _ in leases.values()), np.int64, len(leases))
        expiries = np.fromiter((expiry for _, expiry in leases.values()), np.float64, len(leases))
        return self.renew_many(list(leases), epochs, expiries)

    def renew_many(
        self, nodes: Sequence[str], epochs: NDArray[np.int64], expires_at: NDArray[np.float64]
    ) -> bool:
        """Takes leases of known nodes; whether any that was not fresh is so again."""
        rows = self._nodes.find_all(nodes, len(nodes))
        known = rows != NO_ID
        rows = rows[known]
        stale = ~self.fresh()[rows]
        self.columns.lease_epoch[rows] = epochs[known]
        self.columns.lease_expires_at[rows] = expires_at[known]
        return bool((stale & self.fresh()[rows]).any())

    def _put(self, facts: NodeFacts) -> bool:
        row = self._nodes.find(facts.node)
        if row is None:
            self._write(self._nodes.add(facts.node), facts)
            return True
        before = self._usefulness(row)
        self._write(row, facts)
        after = self._usefulness(row)
        more_free = bool((after.free > before.free).any())
        more_free = more_free or after.unhealthy_gpus < before.unhealthy_gpus
        # Other labels or taints may let others in; a vain wakeup costs less than a missed one.
        return more_free or after.usable > before.usable or after.looks != before.looks

    def _usefulness(self, row: int) -> "_Usefulness":
        columns = self.columns
        is_fresh = (
            columns.lease_epoch[row] == self.epoch and columns.lease_expires_at[row] > self.now
        )
        return _Usefulness(
            free=columns.capacity[row] - columns.used[row],
            unhealthy_gpus=int(columns.unhealthy_gpus[row]),
            usable=bool(columns.ready[row] and not columns.cordoned[row] and is_fresh),
            looks=(
                columns.zone[row],
                columns.dedicated_to[row],
                columns.label_set[row],
                columns.taint_set[row],
            ),
        )

    def _write(self, row: int, facts: NodeFacts) -> None:
        columns = self.columns
        columns.live[row] = True
        columns.zone[row] = self.zones.intern(facts.zone)
        columns.capacity[row] = facts.capacity
        columns.used[row] = facts.used
        columns.unhealthy_gpus[row] = facts.unhealthy_gpus
        columns.ready[row] = facts.ready
        columns.cordoned[row] = facts.cordoned
        columns.lease_epoch[row] = NO_LEASE if facts.lease_epoch is None else facts.lease_epoch
        expiry = facts.lease_expires_at
        columns.lease_expires_at[row] = NEVER if expiry is None else expiry
        owner = facts.dedicated_to
        columns.dedicated_to[row] = NO_ID if owner is None else self.tenants.intern(owner)
        columns.label_set[row] = self.label_sets.intern(frozenset(facts.labels.items()))
        columns.taint_set[row] = self.taint_sets.intern(_taint_set(facts.taints))

    def _make_room(self, new: int) -> None:
        """Grows by a quarter at least, so that adding nodes one by one stays cheap."""
        lacking, rows = new - self._nodes.spare, len(self.columns)
        if lacking > 0:
            grown = rows + max(lacking, rows // 4)
            self.columns = self.columns.grown(grown)
            self._nodes.extend(grown)

    def _drop_unused_sets(self) -> None:
        columns = self.columns
        _compact(self.label_sets, columns.label_set, columns.live, len(self))
        _compact(self.taint_sets, columns.taint_set, columns.live, len(self))


@dataclass(frozen=True, slots=True)
class _Usefulness:
    """What decides whether a changed node may help work that waits."""

    free: NDArray[np.int64]
    unhealthy_gpus: int
    usable: bool
    looks: tuple[int, ...]


def _taint_set(taints: Sequence[Mapping[str, str]]) -> TaintSet:
    return tuple(sorted({(taint["key"], taint["value"], taint["effect"]) for taint in taints}))


def _compact(
    table: InternTable[LabelSet] | InternTable[TaintSet], column: Ids, live: Mask, nodes: int
) -> None:
    """Labels that change all the time must not fill the memory."""
    if len(table) > 2 * nodes + _SETS_TO_SPARE:
        # Rows without a node stay readable: they point at the first set, which is kept for them.
        column[~live] = 0
        renumbered = table.keep_only(np.unique(np.append(column, 0)))
        column[:] = renumbered[column]
