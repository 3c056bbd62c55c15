"""Whether a workload can be admitted at all: what it requests must exist and could ever fit."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from durable.authority.db.connection import Databases
from durable.authority.fleet.node_reads import read_node_shapes
from durable.authority.fleet.regions import list_regions
from durable.authority.quota.quotas import read_quota
from durable.model.capacity import Quota
from durable.model.ids import RegionId, TenantId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.workload import WorkloadManifest
from durable.scheduling.admission import why_never
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.split import split

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Values by their key; a read that fails is not remembered."""

    def __init__(self, read: Callable[[K], Awaitable[V]], *, seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._known: dict[K, tuple[float, V]] = {}
        self._locks: dict[K, asyncio.Lock] = {}

    async def get(self, key: K, *, fresh: bool = False) -> V:
        """The value; with `fresh`, one whose read began after this call."""
        oldest = time.monotonic() - (0.0 if fresh else self._seconds)
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


# A new region counts after so long; a lowered quota is enforced by grants, not by admission.
SHAPES_SECONDS = 5.0
QUOTA_SECONDS = 60.0

# Of each region, one node of each shape.
Shapes = Mapping[RegionId, Snapshot]


class AdmissionCheck:
    """The fleet as admission needs it: regions, node shapes and quotas, read now and then.

    A value read a moment ago is enough to admit, but never to refuse: then it is read again.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._shapes: TtlCache[None, Shapes] = TtlCache(self._read_shapes, seconds=SHAPES_SECONDS)
        self._quotas: TtlCache[TenantId, Quota] = TtlCache(self._read_quota, seconds=QUOTA_SECONDS)

    async def regions_for(self, manifest: WorkloadManifest) -> list[RegionId]:
        """The regions to divide a workload over; refuses what waiting would never mend."""
        try:
            return await self._regions_for(manifest, fresh=False)
        except RefusedError:
            return await self._regions_for(manifest, fresh=True)

    async def _regions_for(self, manifest: WorkloadManifest, *, fresh: bool) -> list[RegionId]:
        shapes = await self._shapes.get(None, fresh=fresh)
        possible = _possible_regions(manifest, shapes)
        regions = possible or list(shapes)
        divided = split(manifest.spec, regions, {})
        _check_quota(manifest, await self._quotas.get(manifest.tenant, fresh=fresh))
        if not possible:
            share = [RegionId(region) for region, slots in divided.items() if slots]
            _check_fit(manifest, [shapes[region] for region in share])
        return regions

    async def _read_shapes(self, _: None) -> Shapes:
        regions = await list_regions(self._databases)
        return {region: await self._read_region(region) for region in regions}

    async def _read_region(self, region: RegionId) -> Snapshot:
        snapshot = Snapshot.empty(region)
        snapshot.put(await read_node_shapes(self._databases, region))
        return snapshot

    async def _read_quota(self, tenant: TenantId) -> Quota:
        return await read_quota(self._databases, tenant)


def _possible_regions(manifest: WorkloadManifest, shapes: Shapes) -> list[RegionId]:
    """The regions in which it could ever run; regions that the manifest names are checked apart."""
    if manifest.spec.weights or manifest.spec.requirements.regions:
        return []
    return [region for region, nodes in shapes.items() if _why_never(manifest, nodes) is None]


def _check_fit(manifest: WorkloadManifest, share: Iterable[Snapshot]) -> None:
    """Refuses what could never run in one of the regions that would get a share of it."""
    for nodes in share:
        never = _why_never(manifest, nodes)
        if never is not None:
            raise RefusedError(never.code, never.sentence)


def _why_never(manifest: WorkloadManifest, nodes: Snapshot) -> Refusal | None:
    return why_never(nodes, manifest.tenant, manifest.name, manifest.spec)


def _check_quota(manifest: WorkloadManifest, quota: Quota) -> None:
    needed = manifest.spec.resources * manifest.spec.replicas
    if not needed.fits_in(quota.target):
        raise RefusedError(
            RefusalCode.OVER_HARD_QUOTA,
            f"{manifest.spec.replicas} replicas need {needed}, which is "
            f"{needed.show_excess(quota.target)} more than the hard quota of {manifest.tenant} "
            f"({quota.target}); request fewer or smaller replicas, or raise the quota.",
        )
