"""The wakeup controller: when something gets better, it wakes those whom that could help.

A wakeup is a hint. It may be lost or come in vain: every placement also tries again by itself at
the end of its backoff.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass

from temporalio.client import Client

from durable.authority.db.errors import AuthorityError
from durable.authority.queue.requests import WaitingRequest, read_waiting
from durable.authority.sides import Regional
from durable.model.refusal import RefusedError
from durable.scheduling.queue.relief import choose
from durable.signals.names import placement_id
from durable.signals.payloads import Wake
from durable.signals.sending import SignalSender

log = logging.getLogger(__name__)

# Bounds the load of a region with a long queue: at most so many decisions per pause.
WOKEN_AT_ONCE = 50
PAUSE_SECONDS = 0.5
# A request that was enqueued just after something got better is found at the next look.
LOOK_SECONDS = 5.0
# Who was woken in vain is left alone for 1, 2, 4 ... seconds, so that others have a turn.
VAIN_FIRST_SECONDS = 1.0
VAIN_LONGEST_SECONDS = 60.0

_Key = tuple[str, str, int]


@dataclass
class _Backoff:
    times: int = 0
    until: float = 0.0


class WakeupController:
    """One region's queue: who waits for what got better, in the order of the queue."""

    def __init__(self, regional: Regional, client: Client) -> None:
        self._regional = regional
        self._sender = SignalSender(client)
        self._woken: dict[_Key, _Backoff] = {}

    async def run(self) -> None:
        cache = self._regional.cache
        seen = cache.wakeups
        while True:
            try:
                await self.wake(time.monotonic())
            except (AuthorityError, RefusedError) as error:
                log.warning("wakeups of %s: %s", self._regional.region, error)
            await asyncio.sleep(PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    seen = await cache.room_appeared(seen)

    async def wake(self, now: float) -> list[_Key]:
        """Wakes those who may be placed now; answers whom."""
        regional = self._regional
        queue = await read_waiting(regional.databases, regional.region)
        regional.queued = len(queue)
        self._woken = {key: self._woken.get(key, _Backoff()) for key in map(_key, queue)}
        ready = [one for one in queue if self._woken[_key(one)].until <= now]
        chosen = choose(regional.cache.relief, (one.waits for one in ready))[:WOKEN_AT_ONCE]
        waking = [ready[place] for place in chosen]
        for one in waking:
            self._note(self._woken[_key(one)], now)
        await self._sender.send_all(
            (
                placement_id(one.tenant, one.workload, one.generation, regional.region),
                "wake",
                Wake(why=f"what it waits for may have appeared ({one.waits.code})"),
            )
            for one in waking
        )
        return [_key(one) for one in waking]

    def _note(self, woken: _Backoff, now: float) -> None:
        if now - woken.until > VAIN_LONGEST_SECONDS:
            woken.times = 0
        wait = min(VAIN_LONGEST_SECONDS, VAIN_FIRST_SECONDS * 2 ** min(woken.times, 10))
        woken.times, woken.until = woken.times + 1, now + wait


def _key(one: WaitingRequest) -> _Key:
    return (str(one.tenant), str(one.workload), one.generation)
