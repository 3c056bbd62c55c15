"""A region as it would be after the plans so far: read once, changed in memory alone."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

from durable.authority.cache.cached_region import CachedRegion
from durable.authority.cache.region_read import RegionRead, read_whole
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.policies import read_revision
from durable.model.fleet.capacity import RecoveryBudget
from durable.model.ids import PolicyRevision, RegionId, TenantId
from durable.model.placement.claims import RegionalClaim, SlotOnNode
from durable.model.policy.policy import Policy
from durable.model.resources import NOTHING, Amounts, Resources, minus, plus
from durable.model.states import RegionState
from durable.scheduling.decide import decide
from durable.scheduling.policies import PolicyError, read_policy
from durable.scheduling.request import PlacementRequest, Proposal
from durable.scheduling.snapshot.region import NodeFacts
from durable.scheduling.work_overrides import override_fields


class PlannedRegion:
    """One region's nodes and grants, and the policy that is active there."""

    def __init__(
        self, read: RegionRead, sent_at: float, revision: PolicyRevision, policy: Policy
    ) -> None:
        self._read = read
        self._sent_at = sent_at
        self._nodes = {facts.node: facts for facts in read.nodes}
        # Built once: what changes is merged, as a worker's cache does.
        self._held = CachedRegion(read.region)
        self._held.merge(read, sent_at=sent_at, is_whole=True)
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
        # Thousands of nodes take a while, in which others want to go on.
        return await asyncio.to_thread(cls, read, sent_at, revision, policy)

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def is_open(self) -> bool:
        return self._read.state is RegionState.OPEN

    def grant_of(self, tenant: TenantId) -> tuple[Amounts, Amounts]:
        """What the tenant was granted here, and what it would use of that."""
        return self._read.grants.get(tenant, (NOTHING, NOTHING))

    def lend(self, tenant: TenantId, granted: Amounts) -> None:
        """Lets a tenant that has a grant here have this much, as the quota controller would."""
        if tenant in self._read.grants:
            used = self._read.grants[tenant][1]
            grants = {**self._read.grants, tenant: (granted, used)}
            self._merge(grants=grants)

    def open_headroom(self, budgets: Iterable[RecoveryBudget]) -> None:
        """Lets requests find what is kept for recovery, as a recovery would."""
        room = self._read.room
        for budget in budgets:
            room = plus(room, minus(budget.amount.amounts, budget.used.amounts))
        self._merge(room=room)

    def decide(self, request: PlacementRequest) -> Proposal:
        """What the region's worker would propose for this request."""
        snapshot = self._held.snapshot()
        fields = override_fields(snapshot, request.tenant, request.workload)
        asked = request.model_copy(update=fields)
        return decide(snapshot, asked, self._policy, self._revision)

    def take(
        self, assignments: Sequence[SlotOnNode], tenant: TenantId, resources: Resources
    ) -> None:
        """Lets the next request find what these would use."""
        self._move([(str(one.node), resources.amounts) for one in assignments], tenant)

    def free(self, claims: Iterable[RegionalClaim], tenant: TenantId) -> None:
        """Lets the next request find what these would leave: each what it uses itself."""
        left = [(str(one.node), minus(NOTHING, one.resources.amounts)) for one in claims]
        self._move(left, tenant)

    def _move(self, used: Iterable[tuple[str, Amounts]], tenant: TenantId) -> None:
        moved: dict[str, Amounts] = {}
        total = NOTHING
        for node, each in used:
            moved[node] = plus(moved.get(node, NOTHING), each)
            total = plus(total, each)
        grants = dict(self._read.grants)
        if tenant in grants:
            granted, before = grants[tenant]
            grants[tenant] = (granted, plus(before, total))
        for node, more in moved.items():
            if facts := self._nodes.get(node):
                self._nodes[node] = replace(facts, used=plus(facts.used, more))
        nodes = tuple(self._nodes[node] for node in moved if node in self._nodes)
        self._merge(nodes=nodes, grants=grants, room=minus(self._read.room, total))

    def _merge(self, *, nodes: Sequence[NodeFacts] = (), **changed: Any) -> None:
        self._read = replace(self._read, nodes=tuple(nodes), **changed)
        self._held.merge(self._read, sent_at=self._sent_at, is_whole=False)
