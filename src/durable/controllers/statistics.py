"""The statistics duty: whenever a region has doubled, the database looks at it again."""

import asyncio
import logging

from durable.authority.db.errors import AuthorityError
from durable.authority.db.statistics import refresh_statistics, tokens_issued
from durable.authority.regional import Regional

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.5
# Below this a plan does not matter.
SMALLEST = 64


class StatisticsKeeper:
    """One region's; autovacuum does the same, but minutes later."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional
        self._known = (0, 0)

    async def run(self) -> None:
        while True:
            try:
                await self.once()
            except AuthorityError as error:
                log.warning("statistics of %s: %s", self._regional.region, error)
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def once(self) -> bool:
        """Whether the nodes or what was placed on them have doubled, and were looked at."""
        databases, region = self._regional.databases, self._regional.region
        # Each by itself: many nodes say nothing of the tables that begin empty.
        sizes = (len(self._regional.cache.snapshot()), await tokens_issued(databases, region))
        pairs = zip(sizes, self._known, strict=True)
        if all(size < max(SMALLEST, 2 * known) for size, known in pairs):
            return False
        await refresh_statistics(databases, region)
        self._known = sizes
        return True
