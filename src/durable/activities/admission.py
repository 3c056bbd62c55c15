"""Whether a workload can be taken in at all: what it asks for must exist and could ever fit."""

import time
from collections.abc import Sequence

from durable.authority.connection import Databases
from durable.authority.quota import read_quota
from durable.authority.shapes import list_regions, read_shapes
from durable.model.ids import RegionId
from durable.model.pending import PendingCode
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import WorkloadManifest
from durable.scheduling.admission import why_never
from durable.scheduling.snapshot import Snapshot

TRUSTED_SECONDS = 5.0

_CODES = {
    PendingCode.REQUIREMENTS: RefusalCode.REQUIRED_LABELS,
    PendingCode.TAINTED: RefusalCode.TENANCY,
}


class Gate:
    """The fleet as admission needs it: its regions and kinds of node, read every few seconds."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._kinds: dict[RegionId, Snapshot] = {}
        self._read_at = float("-inf")

    async def regions(self, *, fresh: bool = False) -> Sequence[RegionId]:
        if fresh or time.monotonic() - self._read_at > TRUSTED_SECONDS:
            self._kinds = {
                region: await self._read(region) for region in await list_regions(self._databases)
            }
            self._read_at = time.monotonic()
        return list(self._kinds)

    async def _read(self, region: RegionId) -> Snapshot:
        kinds = Snapshot.empty(region)
        kinds.put(await read_shapes(self._databases, region))
        return kinds

    async def check(self, manifest: WorkloadManifest, share: Sequence[RegionId]) -> None:
        """Refuses what waiting would never mend; what was read a moment ago is read again first."""
        await self._refuse_over_quota(manifest)
        if self._never(manifest, share) is None:
            return
        await self.regions(fresh=True)
        refused = self._never(manifest, share)
        if refused is not None:
            raise refused

    def _never(self, manifest: WorkloadManifest, share: Sequence[RegionId]) -> RefusedError | None:
        for region in share:
            kinds = [self._kinds[region]] if region in self._kinds else []
            never = why_never(kinds, manifest.tenant, manifest.name, manifest.spec)
            if never is not None:
                code = _CODES.get(never.code, RefusalCode.NODE_FULL)
                return RefusedError(code, f"In {region}: {never.sentence}"[:500])
        return None

    async def _refuse_over_quota(self, manifest: WorkloadManifest) -> None:
        quota = await read_quota(self._databases, manifest.tenant)
        wanted = manifest.spec.resources * manifest.spec.replicas
        if not wanted.fits_in(quota.target):
            raise RefusedError(
                RefusalCode.OVER_HARD_QUOTA,
                f"{manifest.spec.replicas} replicas need {wanted}, which is "
                f"{wanted.excess(quota.target)} more than the hard quota of {manifest.tenant} "
                f"({quota.target}); ask for fewer or smaller ones, or raise the quota.",
            )
