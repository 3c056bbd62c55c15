"""A region in memory: a snapshot that reads are laid over, its clock, and what became better."""

import time
from collections.abc import Mapping

import numpy as np

from durable.authority.cache.lease_poll import LeasePoll
from durable.authority.cache.snapshot import NodeView, RegionSnapshot
from durable.model.amounts import NOTHING, Amounts, at_most, minus
from durable.model.ids import RegionId
from durable.model.states import NodeState, RegionState
from durable.scheduling.snapshot.region import NodeFacts, Snapshot

Grants = Mapping[str, tuple[Amounts, Amounts]]


class CachedRegion:
    """Changed without waiting in between, so that whoever reads it sees exactly one version."""

    def __init__(self, region: RegionId) -> None:
        self._snapshot = Snapshot.empty(region)
        self._known: dict[str, _Content] = {}
        self._asked_at = 0.0
        self._read_at = 0.0
        self.policy_revision: int | None = None

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def epoch(self) -> int:
        return self._snapshot.epoch

    def snapshot(self) -> Snapshot:
        """The region with the time it is there and how long ago that was known to be the newest.

        Both count from before the question was sent: a lease may look lapsed early, never late.
        """
        elapsed = time.monotonic() - self._asked_at
        self._snapshot.now = self._read_at + elapsed
        self._snapshot.age_seconds = elapsed
        return self._snapshot

    def lay_over(self, read: RegionSnapshot, *, asked_at: float, is_whole: bool) -> bool:
        """Takes over a read of changes, or of all; whether those who wait may be luckier now."""
        held = self._snapshot
        self._confirm(read.read_at.timestamp(), asked_at)
        is_open = read.state is RegionState.OPEN
        grants = {grant.tenant: (grant.granted, grant.used) for grant in read.grants}
        better = (
            (read.epoch, is_open, read.policy_revision)
            != (held.epoch, held.is_open, self.policy_revision)
            or not at_most(read.room, held.room)
            or _has_more(grants, held.grants)
        )
        held.epoch, held.version, held.is_open = read.epoch, read.version, is_open
        held.room, held.grants = read.room, grants
        self.policy_revision = read.policy_revision
        return self._take_nodes(read.nodes, is_whole) or better

    def renew(self, poll: LeasePoll, *, asked_at: float) -> bool:
        """Takes over the leases, and the rest if nothing else has changed since."""
        held = self._snapshot
        if poll.version == held.version:
            self._confirm(poll.read_at.timestamp(), asked_at)
        held.now = self._read_at + (time.monotonic() - self._asked_at)
        epochs = np.array(poll.lease_epochs, dtype=np.int64)
        expiries = np.array(poll.lease_expiries, dtype=np.float64)
        better = held.renew_many(poll.nodes, epochs, expiries)
        if poll.version == held.version:
            better = better or not at_most(poll.room, held.room)
            held.room = poll.room
        return better

    def _confirm(self, read_at: float, asked_at: float) -> None:
        self._read_at, self._asked_at = read_at, asked_at
        self._snapshot.now = read_at

    def _take_nodes(self, nodes: tuple[NodeView, ...], is_whole: bool) -> bool:
        gone = {view.node for view in nodes if view.state == NodeState.REMOVED}
        if is_whole:
            gone |= self._known.keys() - {view.node for view in nodes}
        self._snapshot.remove(gone)
        for node in gone:
            self._known.pop(node, None)
        # A full read mostly finds what is known already, and writing it again would take long.
        same: dict[str, tuple[int, float]] = {}
        changed: list[NodeFacts] = []
        for view in nodes:
            if view.node in gone:
                continue
            content = _content(view)
            if self._known.get(view.node) != content:
                self._known[view.node] = content
                changed.append(_facts(view))
            elif view.lease_epoch is not None and view.lease_expires_at is not None:
                same[view.node] = (view.lease_epoch, view.lease_expires_at.timestamp())
        better = self._snapshot.put(changed)
        return self._snapshot.renew(same) or better


_Content = tuple[object, ...]


def _content(view: NodeView) -> _Content:
    """Everything of a node but its lease, which changes all the time."""
    return (
        view.used, view.state, view.cordon_reason, view.capacity, view.zone, view.labels,
        view.taints, view.dedicated_to,
    )  # fmt: skip


def _facts(view: NodeView) -> NodeFacts:
    expires_at = view.lease_expires_at
    return NodeFacts(
        node=view.node,
        zone=view.zone,
        capacity=view.capacity,
        used=view.used,
        labels=view.labels,
        taints=view.taints,
        dedicated_to=view.dedicated_to,
        ready=view.state == NodeState.READY,
        cordoned=view.cordon_reason is not None,
        lease_epoch=view.lease_epoch,
        lease_expires_at=None if expires_at is None else expires_at.timestamp(),
    )


def _has_more(after: Grants, before: Grants) -> bool:
    """Whether some tenant has more of its grant left than before."""
    nothing: tuple[Amounts, Amounts] = (NOTHING, NOTHING)
    return any(
        not at_most(minus(*grant), minus(*before.get(tenant, nothing)))
        for tenant, grant in after.items()
    )
