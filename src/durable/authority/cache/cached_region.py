"""A region in memory: its snapshot, its clock, its policies, and whether capacity was freed."""

import time
from collections.abc import Mapping

import numpy as np

from durable.authority.cache.region_read import RegionRead
from durable.authority.cache.watch import LeasePoll
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError, AuthorityUnreachableError
from durable.authority.fleet.policies import read_revision
from durable.model.ids import PolicyRevision, RegionId
from durable.model.policy.policy import Policy
from durable.model.resources import NOTHING, Amounts, at_most, minus
from durable.model.states import NodeState, RegionState
from durable.scheduling.policies import PolicyError, read_policy
from durable.scheduling.snapshot.region import NodeFacts, Snapshot


class CachedPolicies:
    """Once a revision is known, deciding by it no longer needs the global side."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        self._known: dict[PolicyRevision, Policy | PolicyError] = {}

    async def learn(self, revision: PolicyRevision | None) -> bool:
        """Reads a revision that is not known yet; whether there was anything to learn."""
        if revision is None or revision in self._known:
            return False
        published = await read_revision(self._databases, revision)
        try:
            self._known[revision] = read_policy(published.spec)
        except PolicyError as error:
            self._known[revision] = error
        return True

    def of(self, revision: PolicyRevision | None) -> tuple[PolicyRevision, Policy]:
        """The revision with its content, or a sentence on why there is none to decide by."""
        if revision is None:
            raise AuthorityError(
                f"{self._region} has no active policy; load the fleet, or activate a revision."
            )
        policy = self._known.get(revision)
        if policy is None:
            raise AuthorityUnreachableError(
                f"Policy revision {revision} of {self._region} was not read yet; try again shortly."
            )
        if isinstance(policy, PolicyError):
            raise AuthorityError(
                f"Policy revision {revision}, active in {self._region}, cannot be used: {policy}"
            )
        return revision, policy


class CachedRegion:
    """Changed without an await in between, so that readers see exactly one version.

    Each change answers whether something that waits for room may fit now.
    """

    def __init__(self, region: RegionId) -> None:
        self._snapshot = Snapshot.empty(region)
        self._known: dict[str, _Content] = {}
        self._sent_at = 0.0
        self._read_at = 0.0
        self.policy_revision: int | None = None

    @property
    def version(self) -> int:
        return self._snapshot.version

    @property
    def epoch(self) -> int:
        return self._snapshot.epoch

    def snapshot(self) -> Snapshot:
        """The region, with the time there and how long ago it was known to be up to date.

        Both count from before the read was sent: a lease may look lapsed early, never late.
        """
        elapsed = time.monotonic() - self._sent_at
        self._snapshot.now = self._read_at + elapsed
        self._snapshot.age_seconds = elapsed
        return self._snapshot

    def merge(self, read: RegionRead, *, sent_at: float, is_whole: bool) -> bool:
        """Merges a read of the changes, or of the whole region, that was sent at this time."""
        held = self._snapshot
        self._confirm(read.read_at, sent_at)
        is_open = read.state is RegionState.OPEN
        better = (
            (read.epoch, is_open, read.policy_revision)
            != (held.epoch, held.is_open, self.policy_revision)
            or not at_most(read.room, held.room)
            or _has_more(read.grants, held.grants)
            or (read.overrides, read.draws) != (held.overrides, held.draws)
        )
        held.epoch, held.version, held.is_open = read.epoch, read.version, is_open
        held.room, held.grants = read.room, dict(read.grants)
        held.overrides, held.draws = read.overrides, read.draws
        self.policy_revision = read.policy_revision
        return self._merge_nodes(read.nodes, is_whole) or better

    def renew(self, poll: LeasePoll, *, sent_at: float) -> bool:
        """Merges the leases; also the room and the time, if nothing else has changed since."""
        held = self._snapshot
        is_current = poll.version == held.version
        if is_current:
            self._confirm(poll.read_at, sent_at)
        held.now = self._read_at + (time.monotonic() - self._sent_at)
        epochs = np.array(poll.lease_epochs, dtype=np.int64)
        expiries = np.array(poll.lease_expiries, dtype=np.float64)
        better = held.renew_many(poll.nodes, epochs, expiries)
        if is_current:
            better = better or not at_most(poll.room, held.room)
            held.room = poll.room
        return better

    def _confirm(self, read_at: float, sent_at: float) -> None:
        self._read_at, self._sent_at = read_at, sent_at
        self._snapshot.now = read_at

    def _merge_nodes(self, nodes: tuple[NodeFacts, ...], is_whole: bool) -> bool:
        gone = {facts.node for facts in nodes if facts.state == NodeState.REMOVED}
        if is_whole:
            gone |= self._known.keys() - {facts.node for facts in nodes}
        self._snapshot.remove(gone)
        for node in gone:
            self._known.pop(node, None)
        # Most nodes of a whole read are known already, and writing them again would take long.
        leases: dict[str, tuple[int, float]] = {}
        changed: list[NodeFacts] = []
        for facts in nodes:
            if facts.node in gone:
                continue
            content = _content(facts)
            if self._known.get(facts.node) != content:
                self._known[facts.node] = content
                changed.append(facts)
            elif facts.lease_epoch is not None and facts.lease_expires_at is not None:
                leases[facts.node] = (facts.lease_epoch, facts.lease_expires_at)
        better = self._snapshot.put(changed)
        return self._snapshot.renew(leases) or better


_Content = tuple[object, ...]


def _content(facts: NodeFacts) -> _Content:
    """Everything of a node but its lease, which changes all the time."""
    return (
        facts.used, facts.state, facts.cordon_reason, facts.capacity, facts.zone, facts.labels,
        facts.taints, facts.dedicated_to, facts.unhealthy_gpus,
    )  # fmt: skip


def _has_more(
    after: Mapping[str, tuple[Amounts, Amounts]], before: Mapping[str, tuple[Amounts, Amounts]]
) -> bool:
    """Whether some tenant has more of its grant left than before."""
    return any(
        not at_most(minus(*grant), minus(*before.get(tenant, (NOTHING, NOTHING))))
        for tenant, grant in after.items()
    )
