"""One simulated loss, decided as a recovery would decide it; nothing is read or changed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from durable.authority.reads.startup import RegionPace
from durable.model.fleet.capacity import Quota
from durable.model.fleet.region_life import MARGIN
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.placement.claims import SlotOnNode
from durable.model.placement.pending import Pending
from durable.model.recovery.detection import RecoveryPolicy
from durable.model.recovery.readiness import WorkloadReadiness
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import NOTHING, Amounts, at_least_nothing, minus, plus
from durable.model.work.workload import AdmittedWorkload
from durable.plan.region import PlannedRegion
from durable.planners.recovery.objective import needed_replicas
from durable.scheduling.regions.room import RegionOffer
from durable.scheduling.regions.split import CurrentShares, split
from durable.scheduling.request import PlacementRequest

# From the fence until a moved slot has a node: a round of detection, the fence, two commits.
HAND_OVER_SECONDS = 5.0


def detection_seconds(
    policy: RecoveryPolicy,
    node_lease_seconds: Sequence[float],
    region_lease_seconds: float | None,
) -> float:
    """From the loss until the region's slots may move: leases lapse, and the signs last.

    A region with a database of its own is lost with it: it is not suspected before its own lease
    has lapsed too, and its slots wait for the margin.
    """
    grace = max(policy.grace_seconds, policy.lone_host_grace_seconds, policy.agents_grace_seconds)
    alone = max(node_lease_seconds, default=0.0) + grace
    if region_lease_seconds is None:
        return alone
    return max(alone, region_lease_seconds + MARGIN.total_seconds() + policy.grace_seconds)


@dataclass
class Survivor:
    """A region that is left, as it would be after what was moved there so far."""

    region: PlannedRegion
    pace: RegionPace
    live: Mapping[tuple[TenantId, WorkloadName], tuple[SlotOnNode, ...]]


class Simulation:
    """One loss, workload by workload: each finds what those before it left."""

    def __init__(
        self,
        lost: RegionId,
        survivors: Mapping[RegionId, Survivor],
        quotas: Mapping[TenantId, Quota],
        lost_grants: Mapping[TenantId, Amounts],
        policy: RecoveryPolicy,
        detected_after_seconds: float,
        gone: Collection[RegionId],
    ) -> None:
        self._lost, self._survivors, self._quotas = lost, survivors, quotas
        # Regions that exist and take nothing, the lost one among them: a workload may name them.
        self._gone = sorted(gone)
        self._lost_grants, self._policy = lost_grants, policy
        self._detected_after = detected_after_seconds
        self._moved = 0
        # What can be brought to any region: ungranted, granted there, or left by the lost one.
        self._grants = {tenant: self._all_grant(quota) for tenant, quota in quotas.items()}

    def lose(self, workload: AdmittedWorkload) -> WorkloadReadiness:
        """Where the replicas of the lost region would go."""
        slots = workload.share[self._lost]
        kept = sum(len(some) for region, some in workload.share.items() if region != self._lost)
        readiness = WorkloadReadiness(
            tenant=workload.tenant,
            workload=workload.workload,
            priority=workload.spec.priority,
            lost=len(slots),
            kept=kept,
            needed=needed_replicas(len(slots), self._policy),
            estimated_seconds=self._estimate(workload),
            objective_seconds=self._policy.objective_seconds,
        )
        self._moved += 1
        try:
            homes = self._homes(workload, slots)
        except RefusedError as error:
            return readiness.model_copy(update={"refused": str(error)})
        recovers: dict[RegionId, int] = {}
        pending = None
        for region, given in homes.items():
            placed, why = self._place(workload, region, given, keeps=True)
            recovers[region] = placed
            pending = pending or why
        found = {region: count for region, count in recovers.items() if count}
        return readiness.model_copy(update={"recovers": found, "pending": pending})

    def _homes(
        self, workload: AdmittedWorkload, slots: Sequence[int]
    ) -> dict[RegionId, tuple[int, ...]]:
        """The region of each slot, by the same division that a recovery makes."""
        if not self._survivors:
            raise RefusedError(RefusalCode.UNKNOWN_REGION, "No other region can take any work now.")
        offers = [
            RegionOffer(region, fits=self._place(workload, region, slots, keeps=False)[0])
            for region in self._survivors
        ]
        offers += [RegionOffer(region, fits=0) for region in self._gone]
        shares = {str(region): some for region, some in workload.share.items()}
        current = CurrentShares(shares, lost=frozenset(map(str, self._gone)))
        divided = split(workload.spec, offers, current)
        moved = frozenset(slots)
        homes = {
            RegionId(region): tuple(one for one in some if one in moved)
            for region, some in divided.items()
        }
        return {region: some for region, some in homes.items() if some}

    def _place(
        self,
        workload: AdmittedWorkload,
        region: RegionId,
        slots: Sequence[int],
        *,
        keeps: bool,
    ) -> tuple[int, Pending | None]:
        """How many of the slots would find a node there, and what the others would wait for."""
        survivor = self._survivors[region]
        tenant = workload.tenant
        _, used = survivor.region.grant_of(tenant)
        survivor.region.lend(tenant, plus(used, self._grant_left(tenant)))
        request = PlacementRequest(
            region=region,
            tenant=tenant,
            workload=workload.workload,
            generation=workload.generation,
            attempt=1,
            slots=tuple(slots),
            spec=workload.spec,
            live=survivor.live.get((tenant, workload.workload), ()),
        )
        proposal = survivor.region.decide(request)
        if keeps:
            survivor.region.take(proposal.assignments, tenant, workload.spec.resources)
        return len(proposal.assignments), proposal.pending

    def _all_grant(self, quota: Quota) -> Amounts:
        ungranted = quota.target.excess_over(quota.granted).amounts
        total = plus(ungranted, self._lost_grants.get(quota.tenant, NOTHING))
        for survivor in self._survivors.values():
            total = plus(total, survivor.region.grant_of(quota.tenant)[0])
        return total

    def _grant_left(self, tenant: TenantId) -> Amounts:
        left = self._grants[tenant]
        for survivor in self._survivors.values():
            left = minus(left, survivor.region.grant_of(tenant)[1])
        return at_least_nothing(left)

    def _estimate(self, workload: AdmittedWorkload) -> float:
        """From the loss until it serves: leases lapse, the loss lasts, it moves, it starts."""
        policy, deadlines = self._policy, workload.spec.deadlines
        turn = self._moved / policy.moves_per_second
        longest = (deadlines.started + deadlines.ready).total_seconds()
        name = (workload.tenant, workload.workload)
        known = [
            one.pace.start_seconds[name]
            for one in self._survivors.values()
            if name in one.pace.start_seconds
        ]
        start = min(max(known), longest) if known else longest
        return self._detected_after + HAND_OVER_SECONDS + turn + start
