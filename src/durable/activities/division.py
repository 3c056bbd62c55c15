"""One division of a workload under way: what is wanted, what its regions know, what follows."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from durable.authority.db.everywhere import UnreachableRegions
from durable.authority.reads.replicas import OpenShare, RegionReplicas
from durable.authority.slots.assignment import SlotOwner, SlotOwners
from durable.authority.slots.shares import Publication, PublishedShare
from durable.model.ids import RegionId
from durable.model.placement.pending_reasons import PendingCode
from durable.model.recovery.readiness import Recoverable
from durable.model.states import BindingState
from durable.model.work.rollout import RolloutState
from durable.model.work.share import DesiredShare, ShareReport
from durable.model.work.stand_ins import served_slot
from durable.model.work.workload import AdmittedWorkload, WorkloadKind, WorkloadSpec, with_template
from durable.planners.rollout.observed import (
    Goal,
    ObservedReplica,
    RolloutObservation,
    ShareName,
    fenceposts,
    restarts_together,
)
from durable.planners.rollout.verdict import baked_regions, pause_point

# How long after its admission a new workload is divided without being read.
NEW_SECONDS = 2.0
_NO_ROOM = frozenset(
    {
        PendingCode.CAPACITY,
        PendingCode.SPREAD,
        PendingCode.GRANT,
        PendingCode.NO_GRANT,
        PendingCode.HEADROOM,
    }
)


@dataclass
class WorkloadDivision:
    """One division under way: the workload, and what its regions know of it."""

    workload: AdmittedWorkload
    now: datetime
    stable_spec: WorkloadSpec | None = None
    regions: dict[RegionId, RegionReplicas] = field(default_factory=dict[RegionId, RegionReplicas])
    owners: SlotOwners = field(default_factory=dict[int, SlotOwner])
    # Slots that a lost region keeps until it is back.
    kept: frozenset[int] = frozenset()
    # Slots that the recovery moved whose incident the workload has.
    moved: frozenset[int] = frozenset()
    # Of critical work: whether it would come back if a region were lost.
    recoverable: Recoverable | None = None
    # Whether no slot is on its way from one owner to another, as far as the workload's side knows.
    is_settled: bool = False
    # Whether it has a number of its own, under which it may write.
    is_numbered: bool = False
    unreachable: dict[RegionId, str] = field(default_factory=dict[RegionId, str])
    floors: dict[str, int] = field(default_factory=dict[str, int])
    # Whether no region knows anything of the workload yet; its admission has assigned its slots.
    is_first: bool = False
    # Up to which number the placements of each region know of their shares.
    opened: dict[RegionId, int] = field(default_factory=dict[RegionId, int])
    # Of a job: how many slots each region may run at once; None leaves that as it is.
    parts: Mapping[RegionId, int] | None = None
    waits: list[str] = field(default_factory=list[str])
    unopened: list[RegionId] = field(default_factory=list[RegionId])
    # A newer division was found: nothing more is written by this one.
    is_overtaken: bool = False

    def goal(self, rollout: RolloutState | None) -> Goal:
        """What is wanted, and how much of it may be disturbed now."""
        workload, spec = self.workload, self.workload.spec
        posts = fenceposts(spec)
        restarts = restarts_together(spec, workload.generation, self._generations())
        homes = {slot: str(r) for r, slots in workload.share.items() for slot in slots}
        # What was good before, or is no rollout at all, needs no caution beside the floor.
        is_back = rollout is None or workload.generation == workload.stable_generation
        return Goal(
            workload.generation,
            homes,
            surge=0 if restarts else posts.surge,
            unavailable=posts.unavailable,
            allowance=posts.allowance,
            stable=workload.stable_generation,
            order=tuple(map(str, spec.rollout.regions)),
            baked=frozenset()
            if rollout is None
            else baked_regions(rollout, spec.rollout, self.now),
            most_replaced=None
            if rollout is None
            else pause_point(rollout, spec.rollout, len(homes)),
            is_paused=rollout is not None and rollout.pause is not None,
            at_once=is_back or restarts,
            recreates=restarts,
            kept=self.kept,
        )

    def _generations(self) -> set[int]:
        """Those that have slots or claims somewhere."""
        found = self.regions.values()
        claims = {claim.generation for one in found for claim in one.claims}
        return claims | {
            generation
            for one in found
            for generation, share in one.shares.items()
            if share.slots and share.release_reason is None
        }

    def observed(self) -> RolloutObservation:
        min_ready = (self.workload.spec.rollout.min_ready or timedelta(0)).total_seconds()
        return RolloutObservation(
            shares={
                ShareName(generation, str(region)): share.slots
                for region, found in self.regions.items()
                for generation, share in found.shares.items()
                if share.release_reason is None
            },
            replicas={
                claim.slot: ObservedReplica(
                    ShareName(claim.generation, str(region)),
                    is_serving=claim.state == "serving" and not found.is_fenced,
                    is_available=claim.state == "serving"
                    and not found.is_fenced
                    and claim.age_seconds >= min_ready,
                    is_stopping=claim.is_stopping,
                    is_marked=claim.is_marked,
                )
                # Of a slot that has two, because one region was fenced without being reached, the
                # claim of the other one counts.
                for region, found in sorted(
                    self.regions.items(), key=lambda one: not one[1].is_fenced
                )
                for claim in found.claims
            },
            floors=self.floors,
            starved=frozenset(
                ShareName(report.generation, str(report.region))
                for report in self.reports
                if report.pending is not None and report.pending.code in _NO_ROOM
            ),
            unreachable=frozenset(map(str, self.unreachable)),
        )

    def ready_at(self) -> list[datetime]:
        """When replicas that serve will have served for long enough."""
        min_ready = self.workload.spec.rollout.min_ready
        if min_ready is None:
            return []
        ages = [
            timedelta(seconds=claim.age_seconds)
            for found in self.regions.values()
            for claim in found.claims
            if claim.state == "serving"
        ]
        return [self.now + min_ready - age for age in ages if age < min_ready]

    @property
    def reports(self) -> list[ShareReport]:
        """How far each share has come; one that is over only where some of it is to be."""
        return [
            self._without_kept(found, report)
            for region, found in self.regions.items()
            for report in found.reports
            if report.is_known or region in self.workload.share
        ]

    def _without_kept(self, found: RegionReplicas, report: ShareReport) -> ShareReport:
        """An original behind a fence serves nothing that is known of: its stand-in counts."""
        if not found.is_fenced or not self.kept:
            return report
        kept = Counter(
            BindingState(claim.state)
            for claim in found.claims
            if claim.slot in self.kept and claim.generation == report.generation and claim.state
        )
        return report.model_copy(update={"by_state": Counter(report.by_state) - kept})

    def has_owners(self, wanted: Mapping[int, str]) -> bool:
        """Whether every slot is owned as wanted, and every region knows what it owns."""
        held = {
            (slot, str(region)): number
            for region, found in self.regions.items()
            for slot, number in found.copies.items()
        }
        owners = {slot: one for slot, one in self.owners.items() if slot not in self.kept}
        return (
            self.is_settled
            and not self.unreachable
            and {slot: str(owner.region) for slot, owner in owners.items()} == dict(wanted)
            and all(
                held.get((slot, str(owner.region))) == owner.number
                for slot, owner in owners.items()
            )
        )

    @property
    def failures(self) -> int:
        return sum(found.failures for found in self.regions.values())

    def share_to_publish(
        self, name: ShareName, slots: Iterable[int], reason: str | None
    ) -> PublishedShare | None:
        """None if the region has it like that, or nothing is wanted of it."""
        found = self.regions.get(RegionId(name.region))
        known = None if found is None else found.shares.get(name.generation)
        wanted = tuple(sorted(slots))
        if known is None and not wanted:
            return None
        if known is not None and known.release_reason is not None:
            return None  # it ends, whatever else happens
        workload = self.workload
        due_at = workload.deadline if name.generation == workload.generation else None
        share = DesiredShare(
            slots=wanted,
            spec=self.spec_of(name.generation),
            revision=workload.revision,
            release_reason=reason,
            at_once=self._at_once(name, known),
            admitted_at=None if due_at is None else workload.admitted_at,
            due_at=due_at,
            incident=workload.incident,
            moved=tuple(slot for slot in wanted if served_slot(slot) in self.moved),
        )
        if known is not None and known.says_the_same_as(share):
            return None
        return PublishedShare(workload.tenant, workload.workload, name.generation, share)

    def _at_once(self, name: ShareName, known: OpenShare | None) -> int | None:
        if self.workload.spec.parallelism is None or name.generation != self.workload.generation:
            return None
        if self.parts is None:
            return 0 if known is None else known.at_once
        return self.parts.get(RegionId(name.region), 0)

    def tokens_of(self, region: RegionId, slots: Set[int]) -> tuple[int, ...]:
        """The claims that these slots have in a region."""
        found = self.regions.get(region)
        claims = () if found is None else found.claims
        return tuple(claim.token for claim in claims if claim.slot in slots)

    def publication(
        self,
        floor: int | None,
        shares: tuple[PublishedShare, ...] = (),
        replaced: tuple[int, ...] = (),
    ) -> Publication:
        workload = self.workload
        owned = (slot for share in shares for slot in share.share.slots)
        return Publication(
            workload.tenant,
            workload.workload,
            workload.revision,
            floor,
            shares,
            replaced,
            first_slots=tuple(owned) if self.is_first else (),
        )

    def spec_of(self, generation: int) -> WorkloadSpec:
        """What a generation runs, as many and placed as is wanted now."""
        spec = self.workload.spec
        if generation == self.workload.generation:
            return spec
        if generation == self.workload.stable_generation and self.stable_spec is not None:
            return with_template(spec, self.stable_spec)
        known = next(
            found.shares[generation]
            for found in self.regions.values()
            if generation in found.shares
        )
        before = WorkloadSpec.read(known.spec)
        return before if before.kind is WorkloadKind.JOB else with_template(spec, before)


class NewWorkloads:
    """Workloads that were created here a moment ago, of which no region knows anything yet.

    Only for a moment: what another worker changed since is not known here. Whoever finds nothing
    here reads what the authority and its regions know, and comes to the same.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._created: dict[tuple[str, str], tuple[float, AdmittedWorkload]] = {}

    def note(self, workload: AdmittedWorkload, *, is_new: bool) -> None:
        """Keeps what an admission created, and forgets what it has changed."""
        key, now = (str(workload.tenant), str(workload.workload)), self._clock()
        self._created.pop(key, None)
        if is_new:
            self._created[key] = (now, workload)
        for oldest in list(self._created):
            if self._created[oldest][0] > now - NEW_SECONDS:
                break
            del self._created[oldest]

    def take(self, tenant: str, workload: str, revision: int | None) -> AdmittedWorkload | None:
        """The workload as this revision created it, once."""
        if revision is None:
            return None
        at, created = self._created.pop((str(tenant), str(workload)), (0.0, None))
        is_fresh = self._clock() - at < NEW_SECONDS
        if created is None or not is_fresh or created.revision != revision:
            return None
        return created


def concerned(unreachable: UnreachableRegions, workload: AdmittedWorkload) -> dict[RegionId, str]:
    """Regions that did not answer; one that has nothing of the workload is not waited for."""
    return {region: why for region, why in unreachable.items() if workload.share.get(region)}


def lowers(wanted: Mapping[str, int], known: Mapping[str, int]) -> bool:
    """Whether some floor would come down."""
    return any(floor < known.get(region, 0) for region, floor in wanted.items())
