"""What a region could take of a workload: whether at all, and how many more replicas now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.resources import (
    NOTHING,
    Amounts,
    Resources,
    at_least_nothing,
    how_often,
    minus,
    plus,
    times,
)
from durable.model.work.workload import WorkloadManifest, WorkloadSpec
from durable.scheduling.evidence import eligible_nodes
from durable.scheduling.request import PlacementRequest
from durable.scheduling.snapshot.columns import Rows
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.working_set import WorkingSet


class RegionStanding(IntEnum):
    """Whether a region gets new slots, the best first; a worse one gets some if none is better.

    Only the first starts something now, or when others leave. The rest wait for what nobody may be
    about to do.
    """

    READY = 0
    NO_GRANT_LEFT = 1
    NO_LIVE_NODE = 2
    NO_GRANT = 3
    UNREACHABLE = 4
    FENCED = 5
    CLOSED = 6


@dataclass(frozen=True, slots=True)
class RegionOffer:
    """What one region could take of one workload."""

    region: str
    standing: RegionStanding = RegionStanding.READY
    # How many more replicas would find room and grant now, and for how many the grant is there.
    fits: int = 0
    granted: int = 0


@dataclass(frozen=True)
class RegionRoom:
    """A region as it was last read: one row for each kind of node, and how many are of it."""

    snapshot: Snapshot
    nodes: Mapping[str, int] = field(default_factory=dict[str, int])
    is_reachable: bool = True
    # What was admitted since it was read, and will be taken from it.
    promised: Mapping[TenantId, Amounts] = field(default_factory=dict[TenantId, Amounts])

    @property
    def region(self) -> RegionId:
        return RegionId(self.snapshot.region)

    @property
    def all_promised(self) -> Amounts:
        return _total(self.promised.values())

    def unused_grant(self, tenant: TenantId) -> Amounts:
        granted, used = self.snapshot.grants.get(tenant, (NOTHING, NOTHING))
        used = plus(used, self.promised.get(tenant, NOTHING))
        return at_least_nothing(minus(granted, used))

    def drawable(self, tenant: TenantId, each: Amounts) -> int:
        """For how many replicas there is room on emergency quotas."""
        own = [draw for draw in self.snapshot.draws if draw.tenant == tenant]
        return sum(how_often(minus(draw.amount, draw.used), each) for draw in own)

    def promise(self, tenant: TenantId, resources: Resources, replicas: int) -> "RegionRoom":
        """The same with so many more replicas on their way."""
        before = self.promised.get(tenant, NOTHING)
        more = plus(before, times(resources.amounts, replicas))
        return replace(self, promised={**self.promised, tenant: more})


def offers(
    manifest: WorkloadManifest,
    rooms: Mapping[RegionId, RegionRoom],
    *,
    target: Amounts,
    ungranted: Amounts,
) -> list[RegionOffer]:
    """What every region could take; grant that is unused anywhere can be brought anywhere."""
    tenant = manifest.tenant
    left = target
    for room in rooms.values():
        granted, used = room.snapshot.grants.get(tenant, (NOTHING, NOTHING))
        # What a region was granted is lost to the others for as long as it does not answer.
        spent = plus(used, room.promised.get(tenant, NOTHING)) if room.is_reachable else granted
        left = minus(left, spent)
    reachable = [room.unused_grant(tenant) for room in rooms.values() if room.is_reachable]
    movable = _total([ungranted, *reachable])
    grant = (min(left[0], movable[0]), min(left[1], movable[1]), min(left[2], movable[2]))
    return [
        _offer(room, tenant, manifest.name, manifest.spec, grant)
        for _, room in sorted(rooms.items())
    ]


def _offer(
    room: RegionRoom, tenant: TenantId, name: WorkloadName, spec: WorkloadSpec, grant: Amounts
) -> RegionOffer:
    """What the region could take, when it can be brought up to so much grant."""
    working = WorkingSet(room.snapshot, request_for_one(room.region, tenant, name, spec))
    eligible = np.flatnonzero(eligible_nodes(working))
    drawn = room.drawable(tenant, working.requested)
    obtainable = how_often(grant, working.requested) + drawn
    standing = _standing(room, tenant, bool(len(eligible)), obtainable, drawn)
    granted = how_often(room.unused_grant(tenant), working.requested) + drawn
    if standing is not RegionStanding.READY:
        return RegionOffer(room.region, standing, granted=granted)
    room_left = how_often(minus(room.snapshot.room, room.all_promised), working.requested)
    on_nodes = _fit_on_nodes(room, working, eligible) - _displaced(room, working)
    fits = max(0, min(on_nodes, room_left, obtainable))
    return RegionOffer(room.region, standing, fits=fits, granted=granted)


def _standing(
    room: RegionRoom, tenant: TenantId, has_node: bool, obtainable: int, drawn: int
) -> RegionStanding:
    if not room.is_reachable:
        return RegionStanding.UNREACHABLE
    if not room.snapshot.is_open:
        return RegionStanding.FENCED
    if tenant not in room.snapshot.grants and not drawn:
        return RegionStanding.NO_GRANT
    if not has_node:
        return RegionStanding.NO_LIVE_NODE
    return RegionStanding.READY if obtainable else RegionStanding.NO_GRANT_LEFT


def _fit_on_nodes(room: RegionRoom, working: WorkingSet, rows: Rows) -> int:
    most = working.spread.max_per_node
    fits = np.full(len(rows), np.iinfo(np.int32).max if most is None else most, dtype=np.int64)
    for dimension, amount in enumerate(working.requested):
        if amount:
            free = np.maximum(working.free[rows, dimension], 0)
            fits = np.minimum(fits, free // amount)
    return sum(
        int(each) * room.nodes.get(room.snapshot.name(int(row)), 1)
        for row, each in zip(rows, fits, strict=True)
    )


def _displaced(room: RegionRoom, working: WorkingSet) -> int:
    """How many replicas of this size may lose their place to what was promised."""
    pairs = zip(room.all_promised, working.requested, strict=True)
    return max(-(-promised // one) for promised, one in pairs if one)


def request_for_one(
    region: RegionId, tenant: TenantId, workload: WorkloadName, spec: WorkloadSpec
) -> PlacementRequest:
    """One replica, as the filters need it."""
    return PlacementRequest(
        region=region,
        tenant=tenant,
        workload=workload,
        generation=1,
        attempt=1,
        slots=(0,),
        spec=spec,
    )


def _total(amounts: Iterable[Amounts]) -> Amounts:
    total = NOTHING
    for one in amounts:
        total = plus(total, one)
    return total
