"""What got better in a region, since which version, and whether that could help a request.

A wakeup in vain costs a decision, so a request is woken only by what it waits for: room where one
replica fits, a node that changed, grant of its tenant, or an opened region. Labels, taints and
spread are not looked at: the decision does that.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from durable.model.placement.pending_reasons import PendingCode
from durable.model.resources import NOTHING, Amounts, at_most, how_often, minus, times
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.region import Snapshot

Versions = NDArray[np.int64]

# Nodes exist that could take it, and what they lack is room, or another replica's absence.
_WAITS_FOR_ROOM = frozenset(
    {
        PendingCode.CAPACITY,
        PendingCode.SPREAD,
        PendingCode.CRASHED,
        PendingCode.CONFLICTS,
        PendingCode.QUEUED,
    }
)
# No node could take it, however empty: one has to come, to come back, or to change.
_WAITS_FOR_A_NODE = frozenset(
    {
        PendingCode.NODES_UNAVAILABLE,
        PendingCode.NEVER_FITS,
        PendingCode.REQUIREMENTS,
        PendingCode.TAINTED,
    }
)


@dataclass(frozen=True, slots=True)
class QueuedWork:
    """A request that waits: for what, how much of it, and since which version."""

    tenant: str
    code: PendingCode
    requested: Amounts
    slots: int
    decided_version: int
    # Of a gang: how many must find a node together, and what keeps them from it.
    together: int = 1
    because: PendingCode | None = None
    # It failed, and waits for a time, not for anything of the region's.
    backs_off: bool = False


@dataclass
class Relief:
    """For all that work can wait for: what there is of it, and when it last got better.

    It is worked out from one snapshot after the other, so nothing is lost when a snapshot is
    missed. Rows mean the nodes of the last snapshot.
    """

    version: int = 0
    # Of usable nodes what is free and what they have in all; of others nothing.
    free: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    capacity: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int64))
    freed_at: Versions = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    changed_at: Versions = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    # By tenant, what is left of its grant.
    grants: dict[str, tuple[Amounts, int]] = field(default_factory=dict[str, tuple[Amounts, int]])
    room: tuple[Amounts, int] = (NOTHING, 0)
    # When the region was fenced or opened, or another policy or override came into force or ended.
    rules_changed_at: int = 0
    is_open: bool = True
    _looks: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 8), dtype=np.int64))
    _fresh: Mask = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _rules: tuple[Any, ...] = ()

    def observe(self, snapshot: Snapshot, policy_revision: int) -> None:
        """Notes what is better than in the snapshot before."""
        version, was_known = snapshot.version, snapshot.version == self.version
        columns, fresh = snapshot.columns, snapshot.fresh()
        usable = columns.live & columns.ready & ~columns.cordoned & fresh
        free = np.where(usable[:, None], columns.capacity - columns.used, 0)
        looks: NDArray[np.int64] = np.column_stack(
            (
                columns.capacity, columns.zone, columns.dedicated_to, columns.label_set,
                columns.taint_set, usable,
            )
        ).astype(np.int64)  # fmt: skip
        self._grow(len(free))
        changed = usable & (looks != self._looks).any(axis=1)
        self.changed_at[changed] = version
        self.freed_at[changed | (free > self.free).any(axis=1)] = version
        # Leases have no version: who decided at this one may not have seen the node as it is.
        came_back = usable & fresh & ~self._fresh
        self.changed_at[came_back] = self.freed_at[came_back] = version + 1
        self.free, self._looks, self._fresh = free, looks, fresh
        self.capacity = np.where(usable[:, None], columns.capacity, 0)
        # Neither has room that a budget gave back when it expired.
        self._observe_limits(snapshot, version + was_known)
        # An override that ends by itself changes no version.
        in_force = tuple(
            (one.override, one.effects)
            for one in snapshot.overrides
            if snapshot.now < one.expires_at.timestamp()
        )
        rules = (snapshot.epoch, snapshot.is_open, policy_revision, in_force)
        if self._rules and rules != self._rules:
            self.rules_changed_at = version + was_known
        self.version, self._rules, self.is_open = version, rules, snapshot.is_open

    def _observe_limits(self, snapshot: Snapshot, version: int) -> None:
        for tenant, grant in snapshot.grants.items():
            left = minus(*grant)
            known = self.grants.get(tenant)
            is_better = known is None or not at_most(left, known[0])
            self.grants[tenant] = (left, version if known is None or is_better else known[1])
        is_better = not at_most(snapshot.room, self.room[0])
        self.room = (snapshot.room, version if is_better else self.room[1])

    def _grow(self, rows: int) -> None:
        more = rows - len(self.free)
        if more > 0:
            self.free, self.capacity, self._looks = (
                np.pad(column, ((0, more), (0, 0)))
                for column in (self.free, self.capacity, self._looks)
            )
            self.freed_at, self.changed_at = (
                np.pad(column, (0, more)) for column in (self.freed_at, self.changed_at)
            )
            # Of a node that is new, the lease is no news: its coming has a version.
            self._fresh = np.pad(self._fresh, (0, more), constant_values=True)

    def grant_of(self, tenant: str) -> tuple[Amounts, int]:
        return self.grants.get(tenant, (NOTHING, 0))

    def copy(self) -> "Relief":
        """One that can be taken from."""
        return Relief(
            self.version, self.free.copy(), self.capacity, self.freed_at, self.changed_at,
            dict(self.grants), self.room, self.rules_changed_at, self.is_open,
        )  # fmt: skip


_WAITS_FOR_NOTHING_HERE = frozenset({PendingCode.PARALLELISM, PendingCode.AUTHORITY_UNREACHABLE})


def could_help(relief: Relief, waiting: QueuedWork) -> bool:
    """Whether something that it waits for got better since it was last decided."""
    since, requested, code = waiting.decided_version, waiting.requested, _waits_for(waiting)
    if waiting.backs_off or code in _WAITS_FOR_NOTHING_HERE:
        return False
    if relief.rules_changed_at > since:
        return True
    if code is PendingCode.HELD:
        return False
    if code in _WAITS_FOR_ROOM:
        fits = cast(Mask, (relief.free >= requested).all(axis=1))
        is_new = bool((fits & (relief.freed_at > since)).any())
        return is_new and _fit_together(relief, fits, waiting)
    if code in _WAITS_FOR_A_NODE:
        fits = (relief.capacity >= requested).all(axis=1)
        return bool((fits & (relief.changed_at > since)).any())
    if code is PendingCode.REGION_FENCED:
        return relief.is_open
    if code is PendingCode.REGION_LEASE_LAPSED:
        return relief.version > since  # a renewal after a lapse is a version of its own
    left, at = relief.room if code is PendingCode.HEADROOM else relief.grant_of(waiting.tenant)
    return at > since and (code is PendingCode.NO_GRANT or at_most(requested, left))


def choose(relief: Relief, queue: Iterable[QueuedWork]) -> list[int]:
    """Whom to wake, by their places in the queue: no more of them than what there is can take.

    What one could take is not offered to those behind it.
    """
    offer = relief.copy()
    chosen: list[int] = []
    # What was no help to one is none to its like that were decided later: offers only shrink.
    helpless: dict[QueuedWork, int] = {}
    for place, waiting in enumerate(queue):
        alike = replace(waiting, slots=0, decided_version=0)
        if waiting.decided_version >= helpless.get(alike, waiting.decided_version + 1):
            continue
        if could_help(offer, waiting):
            chosen.append(place)
            _take(offer, waiting)
        else:
            helpless[alike] = waiting.decided_version
    return chosen


def _waits_for(waiting: QueuedWork) -> PendingCode:
    """A gang waits for what its replicas wait for."""
    if waiting.code is not PendingCode.GANG:
        return waiting.code
    return waiting.because or PendingCode.CONFLICTS


def _take(offer: Relief, waiting: QueuedWork) -> None:
    """Takes what so many slots would use, where it got better since they were last decided."""
    each, wanted, code = waiting.requested, waiting.slots, _waits_for(waiting)
    if code is PendingCode.GRANT:
        left, at = offer.grant_of(waiting.tenant)
        offer.grants[waiting.tenant] = (_less(left, each, wanted), at)
    elif code is PendingCode.HEADROOM:
        offer.room = (_less(offer.room[0], each, wanted), offer.room[1])
    elif code in _WAITS_FOR_ROOM:
        fits = (offer.free >= each).all(axis=1) & (offer.freed_at > waiting.decided_version)
        for row in np.flatnonzero(fits):
            cpu, memory, gpus = map(int, offer.free[row])
            taken = min(wanted, how_often((cpu, memory, gpus), each))
            offer.free[row] -= times(each, taken)
            wanted -= taken
            if wanted <= 0:
                return


def _less(left: Amounts, each: Amounts, slots: int) -> Amounts:
    return minus(left, times(each, min(slots, how_often(left, each))))


def _fit_together(relief: Relief, fits: Mask, waiting: QueuedWork) -> bool:
    if waiting.together <= 1:
        return True
    needed = [(dimension, amount) for dimension, amount in enumerate(waiting.requested) if amount]
    often = [relief.free[fits, dimension] // amount for dimension, amount in needed]
    return int(np.minimum.reduce(often).sum()) >= waiting.together
