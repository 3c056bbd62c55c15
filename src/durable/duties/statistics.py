"""The statistics duty: whenever a region has doubled, the database looks at it again."""

import asyncio
import logging

from durable.authority.errors import AuthorityError
from durable.authority.regional import Regional
from durable.authority.statistics import refresh_statistics, tokens_issued

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.5
# Below this a plan does not matter.
SMALLEST = 64


class StatisticsKeeper:
    """One region's; autovacuum does the same, but minutes later."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional
        self._known = 0

    async def run(self) -> None:
        databases, region = self._regional.databases, self._regional.region
        while True:
            try:
                nodes = len(self._regional.cache.snapshot())
                size = nodes + await tokens_issued(databases, region)
                if size >= max(SMALLEST, 2 * self._known):
                    await refresh_statistics(databases, region)
                    self._known = size
            except AuthorityError as error:
                log.warning("statistics of %s: %s", region, error)
            await asyncio.sleep(LOOK_EVERY_SECONDS)
