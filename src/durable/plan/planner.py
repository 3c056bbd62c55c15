"""What applying a manifest would do now: decided on what the authority knows, changing nothing."""

from collections.abc import Mapping, Sequence

from durable.allocation.admission import AdmissionCheck
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.reads.claims import ClaimFilter, read_claims
from durable.authority.workloads.generations import read_stable_spec
from durable.authority.workloads.rows import read_workload
from durable.model.ids import Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.placement.claims import RegionalClaim, SlotOnNode
from durable.model.placement.pending import Pending, show_rejections
from durable.model.placement.pending_reasons import PendingCode, Unreachable
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.model.states import BindingState
from durable.model.work.parallelism import RegionUse, divide_parallelism
from durable.model.work.workload import AdmittedWorkload, WorkloadManifest
from durable.plan.outlook import RolloutOutlook, rollout_outlook
from durable.plan.region import PlannedRegion
from durable.plan.step import Action, next_step
from durable.scheduling.request import Evidence, PlacementRequest, Proposal
from durable.validation.value import Value

_GONE = frozenset({BindingState.FAILED, BindingState.STOPPED, BindingState.RELEASED})


class RegionPlan(Value):
    """One region's share: what stays, what would be placed where, what would wait or stop."""

    region: RegionId
    keeps: tuple[SlotOnNode, ...] = ()
    places: tuple[SlotOnNode, ...] = ()
    waits: tuple[Slot, ...] = ()
    # Of a job: slots that begin when others have ended, because it runs only so many at once.
    held_back: tuple[Slot, ...] = ()
    pending: Pending | None = None
    stops: tuple[SlotOnNode, ...] = ()
    # Only where something had to be decided: why these nodes and not others.
    evidence: Evidence | None = None
    filtered: str = ""


class Plan(Value):
    """What an apply would do if nothing else changed in between."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    action: Action
    # How the new generation takes the place of the old one; the regions are as at the end of it.
    rollout: RolloutOutlook | None = None
    regions: tuple[RegionPlan, ...]

    @property
    def waits(self) -> int:
        return sum(len(region.waits) for region in self.regions)


class Planner:
    """Plans manifests one after the other, each on what those before it would leave."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._admission = AdmissionCheck(databases)
        self._regions: dict[RegionId, PlannedRegion] = {}

    async def plan(self, manifest: WorkloadManifest) -> Plan:
        """The plan, or the refusal that an apply would get."""
        before = await read_workload(self._databases, manifest.tenant, manifest.name)
        if before is not None and before.deleting:
            raise RefusedError(
                RefusalCode.BEING_DELETED,
                f"Workload {manifest.tenant}/{manifest.name} is being deleted; wait until it is "
                "gone, then apply it again.",
            )
        current = None if before is None or before.deleted else before
        admissible = await self._admission.check(manifest)
        shares = admissible.share_of(current)
        stable = None if current is None else await read_stable_spec(self._databases, current)
        action, generation = next_step(manifest, before, shares, stable)
        held: set[RegionId] = set() if current is None else set(current.share)
        regions = sorted(held.union(shares))
        found = await ask_regions(regions, lambda region: self._read(current, region))
        claims = found.by_region
        outlook = None
        is_old = [one.generation != generation for some in claims.values() for one in some]
        if any(is_old) or (current is not None and generation != current.generation):
            outlook = rollout_outlook(
                manifest,
                generation,
                shares,
                claims,
                lambda request: self._regions[request.region].decide(request),
            )
        # What follows is the end of it, when everything that has to go has released its node.
        kept: dict[RegionId, list[RegionalClaim]] = {}
        stops: dict[RegionId, list[RegionalClaim]] = {}
        for region, live in claims.items():
            kept[region], stops[region] = _divided(live, generation, shares.get(region, ()))
            self._regions[region].free(stops[region], manifest.tenant)
        most = _at_once(manifest, shares)
        plans = [
            _unknown(region, shares.get(region, ()), found.unreachable[region])
            if region in found.unreachable
            else self._region_plan(
                manifest,
                generation,
                region,
                shares.get(region, ()),
                kept[region],
                stops[region],
                most.get(region),
            )
            for region in regions
        ]
        self._admission.promise(manifest, admissible.added)
        return Plan(
            tenant=manifest.tenant,
            workload=manifest.name,
            generation=generation,
            action=action,
            rollout=outlook,
            regions=tuple(plans),
        )

    async def _read(
        self, current: AdmittedWorkload | None, region: RegionId
    ) -> list[RegionalClaim]:
        """The live claims, once the region itself is known too."""
        if region not in self._regions:
            self._regions[region] = await PlannedRegion.read(self._databases, region)
        if current is None:
            return []
        which = ClaimFilter(tenant=current.tenant, workload=current.workload)
        found = await read_claims(self._databases, region, which)
        return [claim for claim in found if claim.state is None or claim.state not in _GONE]

    def _region_plan(
        self,
        manifest: WorkloadManifest,
        generation: Generation,
        region: RegionId,
        share: Sequence[int],
        kept: Sequence[RegionalClaim],
        stops: Sequence[RegionalClaim],
        at_once: int | None,
    ) -> RegionPlan:
        missing = tuple(slot for slot in share if slot not in {claim.slot for claim in kept})
        room = len(missing) if at_once is None else max(0, at_once - len(kept))
        missing, held_back = missing[:room], missing[room:]
        plan = RegionPlan(
            region=region, keeps=_placed(kept), stops=_placed(stops), held_back=held_back
        )
        if not missing:
            return plan
        request = PlacementRequest(
            region=region,
            tenant=manifest.tenant,
            workload=manifest.name,
            generation=generation,
            attempt=1,
            slots=missing,
            spec=manifest.spec,
            live=_placed(kept),
        )
        proposal = self._decided(request, manifest.spec.resources)
        evidence = proposal.evidence
        return plan.model_copy(
            update={
                "places": proposal.assignments,
                "waits": proposal.unplaced,
                "pending": proposal.pending,
                "evidence": evidence,
                "filtered": show_rejections(evidence.rejections, evidence.nodes),
            }
        )

    def _decided(self, request: PlacementRequest, resources: Resources) -> Proposal:
        region = self._regions[request.region]
        proposal = region.decide(request)
        region.take(proposal.assignments, request.tenant, resources)
        return proposal


def _at_once(
    manifest: WorkloadManifest, shares: Mapping[RegionId, tuple[int, ...]]
) -> dict[RegionId, int]:
    """How many slots of a job each region may run at once; empty if nothing limits that."""
    parallelism = manifest.spec.parallelism
    if parallelism is None:
        return {}
    uses = {region: RegionUse(len(slots)) for region, slots in shares.items()}
    return divide_parallelism(parallelism, uses)


def _unknown(region: RegionId, share: Sequence[int], why: str) -> RegionPlan:
    """A region that does not answer: what it keeps is not known, and nothing new starts there."""
    pending = Pending.because(PendingCode.AUTHORITY_UNREACHABLE, Unreachable(error=why))
    return RegionPlan(region=region, waits=tuple(share), pending=pending)


def _divided(
    claims: Sequence[RegionalClaim], generation: Generation, share: Sequence[int]
) -> tuple[list[RegionalClaim], list[RegionalClaim]]:
    """What runs what is wanted, where it is wanted; and all else, which has to go."""
    kept: list[RegionalClaim] = []
    stops: list[RegionalClaim] = []
    wanted = frozenset(share)
    for one in claims:
        stays = one.generation == generation and one.slot in wanted
        (kept if stays else stops).append(one)
    return kept, stops


def _placed(claims: Sequence[RegionalClaim]) -> tuple[SlotOnNode, ...]:
    return tuple(SlotOnNode(slot=claim.slot, node=claim.node) for claim in claims)
