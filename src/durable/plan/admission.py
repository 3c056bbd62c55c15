"""Whether a workload can be taken in at all: what it asks for must exist and could ever fit."""

from collections.abc import Mapping, Sequence

from durable.authority.db.connection import Databases
from durable.authority.fleet.node_reads import read_node_shapes
from durable.authority.fleet.regions import list_regions
from durable.authority.quota.quotas import read_quota
from durable.model.capacity import Quota
from durable.model.ids import RegionId, TenantId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import WorkloadManifest
from durable.plan.ttl_cache import Trusted
from durable.scheduling.admission import why_never
from durable.scheduling.snapshot.region import Snapshot
from durable.scheduling.split import split

# A new region takes part so soon; a quota that was lowered is kept by grants, not by admission.
KINDS_SECONDS = 5.0
QUOTA_SECONDS = 60.0

Kinds = Mapping[RegionId, Snapshot]


class Gate:
    """The fleet as admission needs it: regions, kinds of node and quotas, read now and then.

    What was read a moment ago may let something in; it never refuses before it was read again.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._kinds: Trusted[None, Kinds] = Trusted(self._read_kinds, seconds=KINDS_SECONDS)
        self._quotas: Trusted[TenantId, Quota] = Trusted(self._read_quota, seconds=QUOTA_SECONDS)

    async def regions_for(self, manifest: WorkloadManifest) -> list[RegionId]:
        """The regions to divide a workload over; refuses what waiting would never mend."""
        try:
            return await self._regions_for(manifest, fresh=False)
        except RefusedError:
            return await self._regions_for(manifest, fresh=True)

    async def _regions_for(self, manifest: WorkloadManifest, *, fresh: bool) -> list[RegionId]:
        kinds = await self._kinds.get(None, fresh=fresh)
        possible = _possible(manifest, kinds)
        regions = possible or list(kinds)
        divided = split(manifest.spec, regions, {})
        quota = await self._quotas.get(manifest.tenant, fresh=fresh)
        if (refused := _over_quota(manifest, quota)) is not None:
            raise refused
        if not possible:
            share = [RegionId(region) for region, slots in divided.items() if slots]
            if (refused := _never(manifest, share, kinds)) is not None:
                raise refused
        return regions

    async def _read_kinds(self, _: None) -> Kinds:
        regions = await list_regions(self._databases)
        return {region: await self._read_region(region) for region in regions}

    async def _read_region(self, region: RegionId) -> Snapshot:
        kinds = Snapshot.empty(region)
        kinds.put(await read_node_shapes(self._databases, region))
        return kinds

    async def _read_quota(self, tenant: TenantId) -> Quota:
        return await read_quota(self._databases, tenant)


def _never(
    manifest: WorkloadManifest, share: Sequence[RegionId], kinds: Kinds
) -> RefusedError | None:
    for region in share:
        if region not in kinds:
            continue
        never = why_never(kinds[region], manifest.tenant, manifest.name, manifest.spec)
        if never is not None:
            return RefusedError(never.code, never.sentence)
    return None


def _possible(manifest: WorkloadManifest, kinds: Kinds) -> list[RegionId]:
    """The regions in which it could ever run; whoever names regions is told if one is wrong."""
    if manifest.spec.weights or manifest.spec.requirements.regions:
        return []
    return [region for region in kinds if _never(manifest, [region], kinds) is None]


def _over_quota(manifest: WorkloadManifest, quota: Quota) -> RefusedError | None:
    wanted = manifest.spec.resources * manifest.spec.replicas
    if wanted.fits_in(quota.target):
        return None
    return RefusedError(
        RefusalCode.OVER_HARD_QUOTA,
        f"{manifest.spec.replicas} replicas need {wanted}, which is "
        f"{wanted.show_excess(quota.target)} more than the hard quota of {manifest.tenant} "
        f"({quota.target}); ask for fewer or smaller ones, or raise the quota.",
    )
