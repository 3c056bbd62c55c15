"""The statistics controller: has the database analyze a region whenever it has doubled."""

import logging

from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import refresh_statistics, tokens_issued
from durable.authority.sides import Regional
from durable.controllers.rounds import in_rounds

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
# Below this the plan does not matter.
MIN_ROWS = 64


class StatisticsController:
    """One region's statistics; autovacuum would follow too, but minutes later."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional
        self._known = (0, 0)

    async def run(self) -> None:
        what = f"statistics of {self._regional.region}"
        await in_rounds(self.once, POLL_SECONDS, what, (AuthorityError,))

    async def once(self) -> bool:
        """Whether the nodes or the claims have doubled, and were analyzed."""
        databases, region = self._regional.databases, self._regional.region
        # Each by itself: many nodes say nothing about tables that begin empty.
        sizes = (len(self._regional.cache.snapshot()), await tokens_issued(databases, region))
        pairs = zip(sizes, self._known, strict=True)
        if all(size < max(MIN_ROWS, 2 * known) for size, known in pairs):
            return False
        await refresh_statistics(databases, region)
        self._known = sizes
        return True
