"""If a region were lost now: which critical work would serve again, where, and in what time.

Decided as a recovery would decide it, on what the other regions have now: critical work first, with
the capacity that is kept for recovery and the grant that can be brought. Nothing is changed.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.quota.budgets import list_budgets
from durable.authority.quota.quotas import read_booked, read_quota
from durable.authority.reads.claims import ClaimFilter, read_claims
from durable.authority.reads.startup import RegionPace, read_pace
from durable.authority.recovery.region_facts import read_facts
from durable.authority.workloads.rows import list_workloads
from durable.model.fleet.capacity import Quota
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import RegionId, TenantId
from durable.model.placement.claims import SlotOnNode
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.recovery.readiness import LossOutlook
from durable.model.resources import Amounts
from durable.model.states import RegionState
from durable.model.work.workload import AdmittedWorkload
from durable.plan.region import PlannedRegion
from durable.plan.simulated_loss import Simulation, Survivor, detection_seconds
from durable.planners.recovery.objective import is_critical


class Readiness:
    """Simulated losses, each on a fresh read of the regions that would be left."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    async def outlooks(
        self, regions: Sequence[RegionId], policy: RecoveryPolicy, now: datetime
    ) -> list[LossOutlook]:
        """What the loss of each of these regions would mean."""
        everywhere = await list_regions(self._databases)
        workloads = await list_workloads(self._databases)
        staying = [one for one in workloads if not one.deleting]
        critical = [one for one in staying if is_critical(one.spec.priority, one.spec.kind, policy)]
        critical.sort(key=lambda one: (-one.spec.priority, one.tenant, one.workload))
        tenants = {one.tenant for one in critical}
        quotas = {tenant: await read_quota(self._databases, tenant) for tenant in tenants}
        paces = await ask_regions(everywhere, lambda one: read_pace(self._databases, one))
        facts = await read_facts(self._databases)
        outlooks: list[LossOutlook] = []
        for region in regions:
            bound = {one.tenant for one in workloads if not _may_leave(one, region, everywhere)}
            outlook = await self._outlook(
                region, facts, staying, critical, quotas, paces.by_region, bound, policy, now
            )
            outlooks.append(outlook)
        return outlooks

    async def _outlook(
        self,
        lost: RegionId,
        facts: Mapping[RegionId, RegionFact],
        workloads: Sequence[AdmittedWorkload],
        critical: Sequence[AdmittedWorkload],
        quotas: Mapping[TenantId, Quota],
        paces: Mapping[RegionId, RegionPace],
        bound: Collection[TenantId],
        policy: RecoveryPolicy,
        now: datetime,
    ) -> LossOutlook:
        affected = [one for one in critical if one.share.get(lost)]
        # As in a recovery, what is suspected itself is no refuge.
        closed = {
            one: f"{one} is {fact.state} and takes nothing."
            for one, fact in facts.items()
            if one != lost and fact.state is not RegionState.OPEN
        }
        others = [one for one in facts if one != lost and one not in closed]
        found = await ask_regions(others, lambda one: self._survivor(one, affected, paces))
        unusable = closed | dict(found.unreachable)
        survivors: dict[RegionId, Survivor] = {}
        for region, survivor in found.by_region.items():
            if isinstance(survivor, str):
                unusable[region] = survivor
            else:
                survivors[region] = survivor
        lost_grants = await self._grants_left_by(lost, affected, bound)
        has_own_database = self._databases.url_of(lost) != self._databases.urls[0]
        waits = detection_seconds(
            policy,
            # While it does not answer, its nodes are taken to be leased as others are.
            [one.lease_seconds for region, one in paces.items() if region == lost]
            or [one.lease_seconds for one in paces.values()],
            facts[lost].lease_seconds if has_own_database and lost in facts else None,
        )
        gone = {lost, *unusable}
        simulation = Simulation(lost, survivors, quotas, lost_grants, policy, waits, gone)
        return LossOutlook(
            region=lost,
            at=now,
            # One by one beside the event loop: a large fleet takes seconds, for which nothing in
            # this process would watch the regions.
            workloads=tuple([await asyncio.to_thread(simulation.lose, one) for one in affected]),
            others=sum(bool(one.share.get(lost)) for one in workloads) - len(affected),
            unusable=unusable,
        )

    async def _survivor(
        self,
        region: RegionId,
        affected: Sequence[AdmittedWorkload],
        paces: Mapping[RegionId, RegionPace],
    ) -> Survivor | str:
        try:
            planned = await PlannedRegion.read(self._databases, region)
        except AuthorityError as error:
            return str(error)
        if not planned.is_open:
            return f"{region} is fenced and takes nothing."
        if region not in paces:
            return f"{region} did not answer."
        planned.open_headroom(
            one for one in await list_budgets(self._databases, region) if one.incident is None
        )
        live = {
            (one.tenant, one.workload): tuple(
                SlotOnNode(slot=held.slot, node=held.node)
                for held in await read_claims(
                    self._databases,
                    region,
                    ClaimFilter(tenant=one.tenant, workload=one.workload),
                )
            )
            for one in affected
        }
        return Survivor(planned, paces[region], live)

    async def _grants_left_by(
        self, lost: RegionId, affected: Sequence[AdmittedWorkload], bound: Collection[TenantId]
    ) -> dict[TenantId, Amounts]:
        """What the lost region's grants would give to the others.

        Without its database they lapse, unless some work of the tenant is bound to the region.
        """
        if self._databases.url_of(lost) != self._databases.urls[0]:
            booked = (await read_booked(self._databases, [lost]))[lost]
            tenants = {one.tenant for one in affected}.intersection(booked).difference(bound)
            return {tenant: booked[tenant].amounts for tenant in tenants}
        region = await PlannedRegion.read(self._databases, lost)
        return {one.tenant: region.grant_of(one.tenant)[0] for one in affected}


def _may_leave(workload: AdmittedWorkload, lost: RegionId, everywhere: Sequence[RegionId]) -> bool:
    """Whether what it has in the region could go anywhere else."""
    spec = workload.spec
    named = spec.requirements.regions
    return not workload.share.get(lost) or any(
        region != lost and (not named or region in named) and spec.weights.get(region, 1) > 0
        for region in everywhere
    )
