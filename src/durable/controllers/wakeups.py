"""The wakeup controller: when capacity is freed, the head of the queue is woken.

A wakeup is a hint. It may be lost or come in vain: every placement also tries again by itself at
the end of its backoff.
"""

import asyncio
import logging

from temporalio.client import Client

from durable.authority.db.errors import AuthorityError
from durable.authority.queue.requests import read_queue
from durable.authority.sides import Regional
from durable.controllers.sending import SignalSender
from durable.model.refusal import RefusedError
from durable.signals.names import placement_id
from durable.signals.payloads import Wake

log = logging.getLogger(__name__)

# Bounds the load of a region with a long queue: at most so many decisions per pause.
WOKEN_AT_ONCE = 100
PAUSE_SECONDS = 0.5


class WakeupController:
    """One region's queue, woken from its head."""

    def __init__(self, regional: Regional, client: Client) -> None:
        self._regional = regional
        self._sender = SignalSender(client)

    async def run(self) -> None:
        cache = self._regional.cache
        seen = cache.wakeups
        while True:
            seen = await cache.room_appeared(seen)
            try:
                await self.wake()
            except (AuthorityError, RefusedError) as error:
                log.warning("wakeups of %s: %s", self._regional.region, error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def wake(self) -> int:
        """Wakes the head of the queue; answers how many were woken."""
        queue = await read_queue(self._regional.databases, self._regional.region)
        first = queue[:WOKEN_AT_ONCE]
        await self._sender.send_all(
            (
                placement_id(one.tenant, one.workload, one.generation, one.region),
                "wake",
                Wake(why=f"capacity was freed; position {one.position} of {len(queue)}"),
            )
            for one in first
        )
        return len(first)
