"""What a worker holds while it serves: the global queues, or one region's cache and queues."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from durable.authority.cache.region_cache import RegionCache
from durable.authority.commit.regional_commit import GroupCommit
from durable.authority.db.batching import RegionalQueues
from durable.authority.db.connection import Databases
from durable.authority.queue.decisions import DecisionLog
from durable.authority.queue.requests import RequestQueue
from durable.authority.reads.placements import PlacementReader
from durable.authority.reads.share_feed import ShareWatch
from durable.authority.reads.shares import ShareReader
from durable.authority.slots.reconciliation import SlotQueue
from durable.authority.workloads.admission_queue import AdmissionQueue
from durable.authority.workloads.observation_queue import ObservationQueue
from durable.model.ids import RegionId
from durable.model.placement.intents import AnyIntent, Granted, Refused


class GlobalSide:
    """The global side, while a worker serves it; `async with` starts and drains its queues."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self.admissions = AdmissionQueue(databases)
        self.slots = SlotQueue(databases)
        self.shares = RegionalQueues(partial(ShareReader, databases))
        self.observations = ObservationQueue(databases)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for queue in (self.admissions, self.slots, self.shares, self.observations):
            await self._stack.enter_async_context(queue)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


class Regional:
    """One region, while a worker serves it; `async with` starts and drains what is behind it."""

    def __init__(self, databases: Databases, region: RegionId, *, max_waiters: int) -> None:
        self.databases = databases
        self.region = region
        self.cache = RegionCache(databases, region)
        self.requests = RequestQueue(databases, region)
        self.decisions = DecisionLog(databases, region)
        self.placements = PlacementReader(databases, region)
        self.watch = ShareWatch(max_waiters)
        # How many requests wait here, as the wakeup controller last read it.
        self.queued = 0
        self._commits = GroupCommit(databases, region)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        for part in (self.cache, self.requests, self.decisions, self.placements, self._commits):
            await self._stack.enter_async_context(part)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def commit(self, intents: Sequence[AnyIntent]) -> list[Granted | Refused]:
        """The outcomes of these intents, in their order, once their batches have committed."""
        return await asyncio.gather(*(self._commits.submit(intent) for intent in intents))
