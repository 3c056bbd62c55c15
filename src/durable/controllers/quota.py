"""The quota controller: a region whose grant runs out is brought what the tenant has elsewhere.

Level-triggered: each look reads who waits for grant and moves what is missing, ungranted quota
first, then what other regions do not use. The hard quota is kept by the transfers themselves.
"""

import asyncio
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import read_region, regions_at
from durable.authority.quota.rebalancing import read_needs, resume_transfers, top_up
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import RefusedError
from durable.model.resources import Resources

log = logging.getLogger(__name__)

ACTOR = ActorId("controller:quota")
LOOK_EVERY_SECONDS = 2.0
# One that is silent keeps the others no longer than this.
ONE_ANSWER_SECONDS = 5.0
# A tenant that has nothing to give is asked again later and later, not at every look.
AGAIN_FIRST_SECONDS, AGAIN_LONGEST_SECONDS = 4.0, 60.0


class QuotaController:
    """All regions' grants, moved where they are waited for."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        # For whom nothing was found: not before when, and after which pause.
        self._not_before: dict[tuple[TenantId, RegionId], tuple[float, float]] = {}

    async def run(self) -> None:
        while True:
            with _told("regions"):
                await self.once(time.monotonic())
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def once(self, now: float) -> None:
        """Moves what is missing; a region that cannot be reached neither asks nor gives."""
        needs = await self._needs()
        for region in sorted(needs):
            for tenant, need in needs[region].items():
                not_before, _ = self._not_before.get((tenant, region), (0.0, 0.0))
                if need.is_zero or now < not_before:
                    continue
                # Of two that wait one gives, or they would take from each other for ever.
                donors = [one for one in needs if tenant not in needs[one] or one > region]
                with _told(f"grant of {tenant} for {region}"):
                    await self._bring(tenant, region, need, donors, now)

    async def _needs(self) -> dict[RegionId, Mapping[TenantId, Resources]]:
        """Of each region that answers, what those who wait for grant there need."""
        regions: list[RegionId] = []
        for url in self._databases.urls:
            with _told("regions"):
                async with asyncio.timeout(ONE_ANSWER_SECONDS):
                    regions += await regions_at(self._databases, url)
        needs: dict[RegionId, Mapping[TenantId, Resources]] = {}
        for region in regions:
            with _told(f"who waits for grant in {region}"):
                async with asyncio.timeout(ONE_ANSWER_SECONDS):
                    needs[region] = await read_needs(self._databases, region)
        return needs

    async def _bring(
        self,
        tenant: TenantId,
        region: RegionId,
        need: Resources,
        donors: Sequence[RegionId],
        now: float,
    ) -> None:
        with _told(f"transfers of {tenant} that were begun"):
            await resume_transfers(self._databases, tenant)
        # Two controllers that saw the same moment ask for the same; what arrives changes it.
        version = (await read_region(self._databases, region)).version
        arrived = await top_up(
            self._databases,
            tenant,
            region,
            need,
            donors=donors,
            request=f"top-up/{tenant}/{region}/v{version}",
            actor=ACTOR,
        )
        if arrived.is_zero:
            _, pause = self._not_before.get((tenant, region), (0.0, AGAIN_FIRST_SECONDS / 2))
            pause = min(AGAIN_LONGEST_SECONDS, pause * 2)
            self._not_before[tenant, region] = (now + pause, pause)
        else:
            self._not_before.pop((tenant, region), None)
            log.info("brought %s more grant of %s to %s", arrived, tenant, region)


@contextmanager
def _told(what: str) -> Generator[None]:
    """What cannot be done now is done at a later look, and the log says why."""
    try:
        yield
    except (AuthorityError, RefusedError) as error:
        log.warning("%s: %s", what, error)
    except TimeoutError:
        log.warning("%s: no answer within %s s", what, ONE_ANSWER_SECONDS)
