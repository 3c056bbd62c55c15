"""A region as it would be after the plans so far: read once, changed in memory alone."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Self

from durable.authority.cache.cached_region import CachedRegion
from durable.authority.cache.region_read import RegionRead, read_whole
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.policies import read_revision
from durable.model.claims import ObservedSlot, SlotOnNode
from durable.model.ids import PolicyRevision, RegionId, TenantId
from durable.model.policy import Policy
from durable.model.resources import NOTHING, Amounts, Resources, minus, plus
from durable.scheduling.decide import decide
from durable.scheduling.policies import PolicyError, read_policy
from durable.scheduling.request import PlacementRequest, Proposal


class PlannedRegion:
    """One region's nodes and grants, and the policy that is active there."""

    def __init__(
        self, read: RegionRead, sent_at: float, revision: PolicyRevision, policy: Policy
    ) -> None:
        self._read = read
        self._sent_at = sent_at
        self._revision = revision
        self._policy = policy

    @classmethod
    async def read(cls, databases: Databases, region: RegionId) -> Self:
        sent_at = time.monotonic()
        read = await read_whole(databases, region)
        revision = read.policy_revision
        if revision is None:
            raise AuthorityError(
                f"{region} has no active policy; load the fleet, or activate a revision."
            )
        try:
            policy = read_policy((await read_revision(databases, revision)).spec)
        except PolicyError as error:
            raise AuthorityError(
                f"Policy revision {revision}, active in {region}, cannot be used: {error}"
            ) from error
        return cls(read, sent_at, revision, policy)

    def decide(self, request: PlacementRequest) -> Proposal:
        """What the region's worker would propose for this request."""
        held = CachedRegion(self._read.region)
        held.merge(self._read, sent_at=self._sent_at, is_whole=True)
        return decide(held.snapshot(), request, self._policy, self._revision)

    def take(
        self, assignments: Sequence[SlotOnNode], tenant: TenantId, resources: Resources
    ) -> None:
        """Lets the next request find what these would use."""
        self._move([str(one.node) for one in assignments], tenant, resources.amounts)

    def free(self, claims: Sequence[ObservedSlot], tenant: TenantId, resources: Resources) -> None:
        """Lets the next request find what these would leave."""
        self._move([claim.node for claim in claims], tenant, minus(NOTHING, resources.amounts))

    def _move(self, nodes: Iterable[str], tenant: TenantId, each: Amounts) -> None:
        moved: dict[str, Amounts] = {}
        total = NOTHING
        for node in nodes:
            moved[node] = plus(moved.get(node, NOTHING), each)
            total = plus(total, each)
        grants = dict(self._read.grants)
        if tenant in grants:
            granted, used = grants[tenant]
            grants[tenant] = (granted, plus(used, total))
        self._read = replace(
            self._read,
            nodes=tuple(
                replace(facts, used=plus(facts.used, moved[facts.node]))
                if facts.node in moved
                else facts
                for facts in self._read.nodes
            ),
            grants=grants,
            room=minus(self._read.room, total),
        )
