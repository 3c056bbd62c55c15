"""The quota controller: moves grant to the regions where slots wait for it.

Level-triggered: each round reads what waits for grant and moves what is missing, ungranted quota
first, then what other regions do not use. The transfers themselves keep the hard quota.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import read_region, regions_at
from durable.authority.quota.grants import read_overdrafts
from durable.authority.quota.lapses import lapse_grants, lapsed_regions, settle_lapsed
from durable.authority.quota.rebalancing import (
    owe_excess,
    read_lowered,
    read_needs,
    read_owing,
    reclaim,
    resume_transfers,
    top_up,
)
from durable.authority.recovery.region_facts import read_facts
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import RefusedError
from durable.model.resources import Resources

log = logging.getLogger(__name__)

ACTOR = ActorId("controller:quota")
POLL_SECONDS = 2.0
# A region that does not answer delays the others by no more than this.
ANSWER_SECONDS = 5.0
# A tenant that has nothing to move is tried less and less often.
RETRY_FIRST_SECONDS, RETRY_LONGEST_SECONDS = 4.0, 60.0


class QuotaController:
    """Grants of all regions, moved to where slots wait for them."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        # Where nothing could be moved: when to try again, and after which pause.
        self._not_before: dict[tuple[TenantId, RegionId], tuple[float, float]] = {}

    async def run(self) -> None:
        while True:
            with _logged("regions"):
                await self.once(time.monotonic())
            await asyncio.sleep(POLL_SECONDS)

    async def once(self, now: float) -> None:
        """Moves what is missing; a region that cannot be reached neither receives nor gives.

        What it was granted is taken back without it, once its lease has lapsed.
        """
        needs = await self._needs()
        await self._lapse(needs)
        kept = await self._reclaim(sorted(needs))
        kept |= await self._cover(sorted(needs), now)
        for region in sorted(needs):
            for tenant, need in needs[region].items():
                if need.is_zero or tenant in kept:
                    continue
                # Of two that wait only one gives, or they would take from each other for ever.
                donors = [one for one in needs if tenant not in needs[one] or one > region]
                await self._move(tenant, region, need, donors, now, "top-up")

    async def _cover(self, regions: Sequence[RegionId], now: float) -> set[TenantId]:
        """Brings grant to where more runs since an emergency quota ended; answers who lacks it.

        Until then such a tenant gets no grant for anything new, wherever it waits.
        """
        lacking: set[TenantId] = set()
        for region in regions:
            with _logged(f"emergency quotas that are over in {region}"):
                overdrafts = await read_overdrafts(self._databases, region)
                for tenant, amount in sorted(overdrafts.items()):
                    lacking.add(tenant)
                    await self._move(tenant, region, amount, regions, now, "cover")
        return lacking

    async def _lapse(self, needs: dict[RegionId, Mapping[TenantId, Resources]]) -> None:
        """Takes back the grants of lost regions; one that is back first gives its half."""
        for region in await lapsed_regions(self._databases):
            if region in needs:
                with _logged(f"grants of {region} that have lapsed"):
                    await settle_lapsed(self._databases, region)
                    continue
                del needs[region]
        for region, fact in (await read_facts(self._databases)).items():
            if fact.is_movable and region not in needs:
                with _logged(f"grants of {region}"):
                    for tenant, amount in (
                        await lapse_grants(self._databases, region, ACTOR)
                    ).items():
                        log.warning("%s of the grant of %s in %s lapsed", amount, tenant, region)

    async def _reclaim(self, regions: Sequence[RegionId]) -> set[TenantId]:
        """Brings back what exceeds lowered quotas; answers the tenants that still owe some of it.

        What is in use is kept from new work until it is free, or what waits would take it first.
        """
        owing = set(await read_lowered(self._databases))
        for region in regions:
            owing.update(await read_owing(self._databases, region))
        for tenant in sorted(owing):
            with _logged(f"grant of {tenant} that exceeds its quota"):
                request = f"reclaim/{tenant}/{uuid.uuid4()}"
                excess = await reclaim(
                    self._databases, tenant, regions, request=request, actor=ACTOR
                )
                await owe_excess(self._databases, tenant, regions, excess)
                if excess.is_zero:
                    owing.discard(tenant)
        return owing

    async def _needs(self) -> dict[RegionId, Mapping[TenantId, Resources]]:
        """For each region that answers, what the requests that wait for grant need."""
        regions: list[RegionId] = []
        for url in self._databases.urls:
            with _logged("regions"):
                async with asyncio.timeout(ANSWER_SECONDS):
                    regions += await regions_at(self._databases, url)
        needs: dict[RegionId, Mapping[TenantId, Resources]] = {}
        for region in regions:
            with _logged(f"requests that wait for grant in {region}"):
                async with asyncio.timeout(ANSWER_SECONDS):
                    needs[region] = await read_needs(self._databases, region)
        return needs

    async def _move(
        self,
        tenant: TenantId,
        region: RegionId,
        need: Resources,
        donors: Sequence[RegionId],
        now: float,
        what: str,
    ) -> None:
        not_before, pause = self._not_before.get((tenant, region), (0.0, RETRY_FIRST_SECONDS / 2))
        if now < not_before:
            return
        with _logged(f"grant of {tenant} for {region}"):
            with _logged(f"unfinished transfers of {tenant}"):
                await resume_transfers(self._databases, tenant)
            # Two controllers that saw the same version send the same request; what arrives
            # changes it.
            version = (await read_region(self._databases, region)).version
            arrived = await top_up(
                self._databases,
                tenant,
                region,
                need,
                donors=donors,
                request=f"{what}/{tenant}/{region}/v{version}",
                actor=ACTOR,
            )
            if arrived.is_zero:
                pause = min(RETRY_LONGEST_SECONDS, pause * 2)
                self._not_before[tenant, region] = (now + pause, pause)
            else:
                self._not_before.pop((tenant, region), None)
                log.info("moved %s of the grant of %s to %s", arrived, tenant, region)


@contextmanager
def _logged(what: str) -> Generator[None]:
    """What fails now is logged and tried again in a later round."""
    try:
        yield
    except (AuthorityError, RefusedError) as error:
        log.warning("%s: %s", what, error)
    except TimeoutError:
        log.warning("%s: no answer within %s s", what, ANSWER_SECONDS)
