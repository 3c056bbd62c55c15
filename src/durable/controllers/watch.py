"""The watch controller: tells the global side how old this worker's view of its region is."""

import logging

from durable.authority.db.errors import AuthorityError
from durable.authority.recovery.watches import report_watch
from durable.authority.sides import Regional
from durable.controllers.rounds import in_rounds

log = logging.getLogger(__name__)

POLL_SECONDS = 15.0


class WatchController:
    """One region's cache, as the detection of losses sees it."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional

    async def run(self) -> None:
        what = f"view of {self._regional.region}"
        await in_rounds(self.once, POLL_SECONDS, what, (AuthorityError,))

    async def once(self) -> None:
        """A cache that no longer follows its region grows old, however busy its worker is."""
        regional = self._regional
        age = regional.cache.snapshot().age_seconds
        await report_watch(regional.databases, regional.region, age_seconds=age)
