"""Whether a workload can be admitted: what it requires must exist, and must be able to fit."""

from collections.abc import Iterable, Mapping

from durable.authority.db.connection import Databases
from durable.authority.fleet.node_reads import read_node_shapes
from durable.authority.fleet.regions import list_regions
from durable.authority.quota.quotas import read_quota
from durable.model.capacity import Quota
from durable.model.ids import RegionId, TenantId
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.workload import WorkloadManifest
from durable.plan.ttl_cache import TtlCache
from durable.scheduling.admission import why_never
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.split import split

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
