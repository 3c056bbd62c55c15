"""The reaper: frees reservations whose lease ran out and whose placement does not see to it.

A placement expires its own reservations. One that was terminated does not, and what it had reserved
would keep capacity, quota and a slot for ever. The reaper sends the intent that the placement would
have sent, through the same commit: the authority compares the lease with its own clock under the
region's lock, so it may come late, never early, and whichever of the two comes second finds that it
was done.
"""

import logging

from durable.authority.reads.claims import expire, read_lapsed_reservations
from durable.authority.sides import Regional
from durable.controllers.rounds import in_rounds
from durable.model.ids import ActorId
from durable.model.placement.intents import Granted
from durable.model.refusal import RefusalCode

log = logging.getLogger(__name__)

ACTOR = ActorId("controller:reaper")
POLL_SECONDS = 5.0
# A placement that lives does it by itself, and people should see that it was the placement.
GRACE_SECONDS = 30.0
MAX_PER_ROUND = 100


class ReaperController:
    """One region's reservations that nothing else will ever free."""

    def __init__(self, regional: Regional) -> None:
        self._regional = regional

    async def run(self) -> None:
        what = f"lapsed reservations of {self._regional.region}"
        await in_rounds(self.once, POLL_SECONDS, what)

    async def once(self) -> int:
        """Frees what has lapsed for long enough, at most so many; answers how many were freed."""
        regional = self._regional
        lapsed = await read_lapsed_reservations(
            regional.databases, regional.region, grace_seconds=GRACE_SECONDS, most=MAX_PER_ROUND
        )
        if not lapsed:
            return 0
        epoch = regional.cache.epoch
        outcomes = await regional.commit([expire(one, ACTOR, epoch) for one in lapsed])
        freed = [outcome for outcome in outcomes if isinstance(outcome, Granted)]
        refused = {one.refusal.code for one in outcomes if not isinstance(one, Granted)}
        if RefusalCode.FENCED_WRITER in refused:
            await regional.cache.refresh()
        if freed:
            tokens = ", ".join(str(one.token) for one in freed[:10])
            log.info("freed %s lapsed reservations of %s: %s", len(freed), regional.region, tokens)
        return len(freed)
