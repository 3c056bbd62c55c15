"""Whether a workload can be admitted, and where its replicas would find room and grant."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions
from durable.authority.quota.quotas import read_booked, read_quota
from durable.authority.reads.room import read_room
from durable.authority.recovery.region_facts import read_facts
from durable.model.fleet.capacity import Quota
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import RegionId, TenantId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.resources import (
    NOTHING,
    ZERO,
    Amounts,
    Resources,
    at_most,
    minus,
    plus,
    show_amounts,
    times,
)
from durable.model.states import RegionState
from durable.model.work.workload import (
    AdmittedWorkload,
    WorkloadKind,
    WorkloadManifest,
    WorkloadSpec,
    template_of,
)
from durable.planners.rollout.observed import fenceposts
from durable.scheduling.regions.admission import why_never
from durable.scheduling.regions.room import RegionOffer, RegionRoom, offers
from durable.scheduling.regions.split import CurrentShares, refuse_unknown, split
from durable.scheduling.snapshot.region import Snapshot

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Values by their key; a read that fails is not remembered."""

    def __init__(self, read: Callable[[K], Awaitable[V]], *, seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._known: dict[K, tuple[float, V]] = {}
        self._locks: dict[K, asyncio.Lock] = {}

    async def get(self, key: K, *, seconds: float | None = None) -> V:
        """The value, read at most so long ago; with 0, one whose read began after this call."""
        oldest = time.monotonic() - (self._seconds if seconds is None else seconds)
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = self._known.get(key)
            if known is not None and known[0] >= oldest:
                return known[1]
            began = time.monotonic()
            try:
                value = await self._read(key)
            except BaseException:
                self._locks.pop(key, None)  # or the locks of unknown names would pile up
                raise
            self._known[key] = (began, value)
            return value


# What was read a moment ago: of what lasts, such as which regions and kinds of nodes there are; and
# where not all of it would find room.
ROOM_SECONDS = 5.0
TIGHT_SECONDS = 0.5
QUOTA_SECONDS = 5.0

Rooms = Mapping[RegionId, RegionRoom]


class AdmissionCheck:
    """The fleet as admission needs it: regions, their room and quotas, read now and then.

    A value read a moment ago is enough to admit, but never to refuse: then it is read again.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        # Of each region, what was last read of it; one that does not answer is known by that.
        self._rooms: dict[RegionId, RegionRoom] = {}
        self._reading: TtlCache[None, None] = TtlCache(self._read_rooms, seconds=ROOM_SECONDS)
        self._quotas: TtlCache[TenantId, Quota] = TtlCache(self._read_quota, seconds=QUOTA_SECONDS)
        # Read more often than rooms: what is given to a region that was just fenced is moved at
        # once, and would draw on a recovery budget although it is new.
        self._facts: TtlCache[None, Mapping[RegionId, RegionFact]] = TtlCache(
            lambda _: read_facts(databases), seconds=TIGHT_SECONDS
        )

    async def check(
        self, manifest: WorkloadManifest, scales: WorkloadSpec | None = None
    ) -> "Admissible":
        """How to divide a workload over regions; refuses what waiting would never mend.

        A workload that is scaled down may keep more than the quota: it was lowered, or an emergency
        quota has ended.
        """
        try:
            admissible = await self._check(manifest, scales, seconds=None)
            if admissible.is_roomy:
                return admissible
            return await self._check(manifest, scales, seconds=TIGHT_SECONDS)
        except RefusedError:
            return await self._check(manifest, scales, seconds=0.0)

    async def _check(
        self, manifest: WorkloadManifest, scales: WorkloadSpec | None, *, seconds: float | None
    ) -> "Admissible":
        await self._reading.get(None, seconds=seconds)
        facts = await self._facts.get(None, seconds=seconds)
        for region, room in self._rooms.items():
            # One that is only suspected goes on with what it has, and is given nothing new.
            fact = facts.get(region)
            if room.is_reachable and fact is not None and fact.state is not RegionState.OPEN:
                room.snapshot.is_open = False
            # Others may have found out since it was read.
            if room.is_reachable and self._databases.is_away(region):
                self._rooms[region] = replace(room, is_reachable=False)
        quota = await self._quotas.get(manifest.tenant, seconds=seconds)
        possible = _possible_regions(manifest, self._rooms)
        rooms = {region: self._rooms[region] for region in possible or self._rooms}
        named = split(
            manifest.spec, [RegionOffer(region, fits=manifest.spec.replicas) for region in rooms]
        )
        # Of all regions: one that it cannot run in may have its place in the order.
        refuse_unknown(manifest.spec.rollout.regions, self._rooms)
        allowed = plus(quota.target.amounts, _emergency(manifest, rooms))
        if scales is None or manifest.spec.most_at_once > scales.most_at_once:
            _check_quota(manifest, quota, allowed)
        if not possible:
            share = [RegionId(region) for region, slots in named.items() if slots]
            _check_fit(manifest, [rooms[region].snapshot for region in share])
        made = offers(
            manifest,
            rooms,
            target=quota.target.amounts,
            ungranted=quota.target.excess_over(quota.granted).amounts,
        )
        return Admissible(manifest, tuple(made), quota, allowed)

    def promise(self, manifest: WorkloadManifest, added: Mapping[RegionId, int]) -> None:
        """Lets the next workload find what this one will leave, until regions are read again."""
        for region, replicas in added.items():
            room, most = self._rooms[region], min(replicas, manifest.spec.most_at_once)
            self._rooms[region] = room.promise(manifest.tenant, manifest.spec.resources, most)

    async def _read_rooms(self, _: None) -> None:
        regions = await list_regions(self._databases)
        answers = await ask_regions(regions, lambda region: read_room(self._databases, region))
        booked = await read_booked(self._databases, list(answers.unreachable))
        for region in answers.unreachable:
            known = self._rooms.get(region) or RegionRoom(Snapshot.empty(region))
            # The books know what is still its: what has lapsed is to be had again.
            known.snapshot.grants = {
                tenant: (amount.amounts, NOTHING) for tenant, amount in booked[region].items()
            }
            self._rooms[region] = replace(known, is_reachable=False)
        self._rooms |= answers.by_region

    async def _read_quota(self, tenant: TenantId) -> Quota:
        return await read_quota(self._databases, tenant)


@dataclass
class Admissible:
    """What the regions could take of one workload; divided once its present shares are known."""

    manifest: WorkloadManifest
    offers: tuple[RegionOffer, ...]
    quota: Quota
    # What the tenant may use: its quota, and what is in force beside it.
    allowed: Amounts
    # How many slots the last division gave to each region that did not have them.
    added: Mapping[RegionId, int] = field(default_factory=dict[RegionId, int])

    @property
    def is_roomy(self) -> bool:
        """Whether all replicas would find room and grant now, in the regions that it may use."""
        allowed = self.manifest.spec.requirements.regions
        fits = [one.fits for one in self.offers if not allowed or one.region in allowed]
        return sum(fits) >= self.manifest.spec.replicas

    def share_of(self, before: AdmittedWorkload | None) -> Mapping[RegionId, tuple[int, ...]]:
        """The slots of each region that has any."""
        current = current_shares(before, self.manifest.spec)
        if current.is_rollout:
            _check_surge(self.manifest, self.quota, self.allowed)
        divided = split(self.manifest.spec, self.offers, current)
        share = {RegionId(region): slots for region, slots in divided.items() if slots}
        had: Mapping[RegionId, tuple[int, ...]] = {} if before is None else before.share
        self.added = {
            region: len(set(slots).difference(had.get(region, ())))
            for region, slots in share.items()
        }
        return share


def current_shares(before: AdmittedWorkload | None, spec: WorkloadSpec) -> CurrentShares:
    """Where the slots are, and what the new spec asks of them."""
    if before is None:
        return CurrentShares()
    return CurrentShares(
        {str(region): slots for region, slots in before.share.items()},
        is_rollout=template_of(before.spec) != template_of(spec),
        is_rebalanced=dict(before.spec.weights) != dict(spec.weights),
    )


def _possible_regions(manifest: WorkloadManifest, rooms: Rooms) -> list[RegionId]:
    """The regions in which it could ever run; regions that the manifest names are checked apart."""
    if manifest.spec.weights or manifest.spec.requirements.regions:
        return []
    return [region for region, room in rooms.items() if _why_never(manifest, room.snapshot) is None]


def _check_fit(manifest: WorkloadManifest, share: Iterable[Snapshot]) -> None:
    """Refuses what could never run in one of the regions that would get a share of it."""
    for nodes in share:
        never = _why_never(manifest, nodes)
        if never is not None:
            raise RefusedError(never.code, never.sentence)


def _why_never(manifest: WorkloadManifest, nodes: Snapshot) -> Refusal | None:
    return why_never(nodes, manifest.tenant, manifest.name, manifest.spec)


def _check_surge(manifest: WorkloadManifest, quota: Quota, allowed: Amounts) -> None:
    """Refuses a rollout that could never begin: nothing may be missing, nothing can be added."""
    spec = manifest.spec
    if fenceposts(spec).unavailable or spec.is_gang or spec.kind is WorkloadKind.JOB:
        return
    needed = times(spec.resources.amounts, spec.replicas + 1)
    if spec.replicas and not at_most(needed, allowed):
        raise RefusedError(
            RefusalCode.OVER_HARD_QUOTA,
            f"No replica may be unavailable, and a surge replica beside the {spec.replicas} needs "
            f"{show_amounts(needed)}, which is more than the hard quota of {manifest.tenant} "
            f"({quota.target}); allow one to be unavailable (rollout.max_unavailable and "
            "disruption.max_unavailable), or raise the quota.",
        )


def _emergency(manifest: WorkloadManifest, rooms: Rooms) -> Amounts:
    """What emergency quotas in force let the tenant use where the workload may run."""
    named = manifest.spec.requirements.regions
    total = NOTHING
    for region, room in rooms.items():
        if room.is_reachable and (not named or region in named):
            own = (one for one in room.snapshot.draws if one.tenant == manifest.tenant)
            for draw in own:
                total = plus(total, draw.amount)
    return total


def _check_quota(manifest: WorkloadManifest, quota: Quota, allowed: Amounts) -> None:
    at_once = manifest.spec.most_at_once
    needed = times(manifest.spec.resources.amounts, at_once)
    if not at_most(needed, allowed):
        excess = Resources.clipped(minus(needed, allowed))
        emergency = minus(allowed, quota.target.amounts)
        beside = f" with {show_amounts(emergency)} of emergency quota" if any(emergency) else ""
        raise RefusedError(
            RefusalCode.OVER_HARD_QUOTA,
            f"{at_once} replicas need {show_amounts(needed)}, which is "
            f"{excess.show_excess(ZERO)} more than the hard quota of {manifest.tenant} "
            f"({quota.target}{beside}); request fewer or smaller replicas, or raise the quota.",
        )
