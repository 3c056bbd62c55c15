"""How a change would be rolled out: what may be added, what may be missing, what fits now."""

from collections.abc import Callable, Mapping
from itertools import count, islice

from durable.model.ids import Generation, RegionId
from durable.model.placement.claims import RegionalClaim, SlotOnNode
from durable.model.placement.pending import Pending
from durable.model.work.workload import WorkloadKind, WorkloadManifest
from durable.planners.rollout.observed import fenceposts
from durable.scheduling.request import PlacementRequest, Proposal
from durable.validation.value import Value


class RolloutOutlook(Value):
    """What happens between the old generation and the new one."""

    # A gang or a job: everything old is stopped first, and the new one starts together.
    recreates: bool
    # How many replicas may be added, and how many may be missing, at a time.
    surge: int
    unavailable: int
    # How many old and new replicas together keep serving meanwhile.
    keeps_serving: int
    # The order of the regions; of those that answered, the surge replicas that fit now.
    regions: tuple[RegionId, ...]
    surge_fits: Mapping[RegionId, int]
    # Why not all of them fit in a region.
    surge_waits: Mapping[RegionId, Pending]

    @property
    def sentences(self) -> list[str]:
        """For people: how it goes, and where it would be slower than it could be."""
        if self.recreates:
            return ["All old replicas are stopped first; the new ones then start together."]
        shown = [
            f"Rolls out with up to {self.surge} surge and {self.unavailable} unavailable replicas; "
            f"at least {self.keeps_serving} replicas, old or new, keep serving meanwhile.",
            f"Regions in turn: {', '.join(self.regions)}.",
        ]
        for region, why in self.surge_waits.items():
            fits = self.surge_fits[region]
            much = (
                f"only {fits} of {self.surge} surge replicas fit"
                if fits
                else "no surge replica fits"
            )
            instead = (
                "it goes on within what may be unavailable"
                if self.unavailable
                else "it waits for room, because none may be unavailable"
            )
            shown.append(f"In {region} {much} now, so {instead}: {why}")
        return shown


Decide = Callable[[PlacementRequest], Proposal]


def rollout_outlook(
    manifest: WorkloadManifest,
    generation: Generation,
    shares: Mapping[RegionId, tuple[int, ...]],
    claims: Mapping[RegionId, list[RegionalClaim]],
    decide: Decide,
) -> RolloutOutlook:
    """Asks each region where surge replicas would go now, beside everything that runs."""
    spec = manifest.spec
    posts = fenceposts(spec)
    recreates = spec.is_gang or spec.kind is WorkloadKind.JOB
    named = [region for region in spec.rollout.regions if region in shares]
    order = (*named, *sorted(set(shares).difference(named)))
    fits: dict[RegionId, int] = {}
    waits: dict[RegionId, Pending] = {}
    for region in () if recreates or not posts.surge else order:
        if region not in claims:
            continue
        most = min(posts.surge, len(shares[region]))
        there = {one.slot for one in claims[region]}
        # A rollout that is under way has some of them already.
        surging = [
            one
            for one in claims[region]
            if one.slot >= spec.replicas and one.generation == generation
        ]
        free = (slot for slot in count(spec.replicas) if slot not in there)
        fits[region] = min(most, len(surging))
        if len(surging) >= most:
            continue
        request = PlacementRequest(
            region=region,
            tenant=manifest.tenant,
            workload=manifest.name,
            generation=generation,
            attempt=1,
            slots=tuple(islice(free, most - len(surging))),
            spec=spec,
            live=tuple(SlotOnNode(slot=one.slot, node=one.node) for one in claims[region]),
        )
        proposal = decide(request)
        fits[region] += len(proposal.assignments)
        if proposal.pending is not None:
            waits[region] = proposal.pending
    return RolloutOutlook(
        recreates=recreates,
        surge=posts.surge,
        unavailable=posts.unavailable,
        keeps_serving=0 if recreates else max(0, spec.replicas - posts.unavailable),
        regions=order,
        surge_fits=fits,
        surge_waits=waits,
    )
