"""What a policy revision would have changed of the recent decisions of each region."""

import asyncio
from collections.abc import Sequence

from durable.authority.cache.history import read_nodes_at
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import Answers, ask_regions
from durable.authority.fleet.policies import read_revision
from durable.authority.policies.recent_decisions import read_recent_decisions
from durable.model.ids import PolicyRevision, RegionId
from durable.model.policy.policy import Policy
from durable.model.policy.rollout import MAX_WORKLOADS_REPORTED, ShadowReport
from durable.planners.policy_rollout.shadow import ReplayedDecision, replay, summarize
from durable.scheduling.policies import read_policy
from durable.scheduling.snapshot.region import NodeFacts

DECISIONS_COMPARED = 100
# Of a policy that has no number yet.
UNPUBLISHED = 2**31 - 1


class Shadow:
    """Makes recent decisions again; each revision and each version is read once."""

    def __init__(self, databases: Databases, policy: Policy, revision: int = UNPUBLISHED) -> None:
        self._databases, self._policy, self._revision = databases, policy, revision
        self._known: dict[PolicyRevision, Policy] = {}

    async def compare_all(self, regions: Sequence[RegionId]) -> Answers[ShadowReport]:
        return await ask_regions(regions, self.compare)

    async def compare(self, region: RegionId) -> ShadowReport:
        """One region's decisions under this policy, beside what was decided."""
        decisions = await read_recent_decisions(self._databases, region, DECISIONS_COMPARED)
        replayed: list[ReplayedDecision] = []
        version: int | None = None
        nodes: Sequence[NodeFacts] = ()
        for decision in decisions:
            if decision.cache_version != version:
                version = decision.cache_version
                nodes = await read_nodes_at(self._databases, region, version)
            used = await self._revision_of(decision.policy_revision)
            replayed.append(replay(decision, nodes, used, self._policy, self._revision))
            # A decision takes a while, and others share this thread.
            await asyncio.sleep(0)
        repeated = [one for one in replayed if one.after is not None]
        return ShadowReport(
            region=region,
            at=await read_time(self._databases),
            decisions=len(repeated),
            unrepeatable=len(replayed) - len(repeated),
            workloads=summarize(repeated)[:MAX_WORKLOADS_REPORTED],
        )

    async def _revision_of(self, revision: PolicyRevision) -> Policy:
        if revision not in self._known:
            self._known[revision] = read_policy(
                (await read_revision(self._databases, revision)).spec
            )
        return self._known[revision]
