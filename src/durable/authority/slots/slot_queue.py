"""Slots assigned through queues: one for the facts and one for each region's copies.

A region that does not answer keeps those waiting that want slots there, and nobody else.
"""

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Self

from durable.authority.db.batching import Batcher
from durable.authority.db.chunks import portions
from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import read_region
from durable.authority.slots.assignment import Copy, Owners, Wish, assign_slots, copy_slots
from durable.model.ids import RegionId
from durable.model.refusal import Refusal, RefusedError

MAX_WISHES_PER_CALL = 500
MAX_SLOTS_PER_CALL = 20_000


class SlotQueue:
    """Assigns slots; `async with` runs it, leaving waits for the last batches."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self._facts = _Facts(databases)
        self._copies: dict[RegionId, _Copies] = {}
        # A region that was added stays.
        self._regions: set[RegionId] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._facts)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def assign(self, wish: Wish) -> Owners:
        """Who owns what of the workload, once every region holds what it owns of the wish."""
        for region in wish.share.keys() - self._regions:
            await read_region(self.databases, region)  # refuses an unknown one
            self._regions.add(region)
        owners = await self._facts.submit(wish)
        if isinstance(owners, Refusal):
            raise RefusedError(owners.code, owners.sentence)
        held: dict[RegionId, dict[int, int]] = defaultdict(dict)
        for region, slots in wish.share.items():
            for slot in slots:
                if owners[slot].region == region:
                    held[region][slot] = owners[slot].number
        await asyncio.gather(
            *(
                self._copy(region, Copy(wish.tenant, wish.workload, numbers))
                for region, numbers in held.items()
            )
        )
        return owners

    async def _copy(self, region: RegionId, copy: Copy) -> None:
        queue = self._copies.get(region)
        if queue is None:
            # Known before it runs: whoever comes meanwhile waits in the same queue.
            queue = self._copies[region] = _Copies(self.databases, region)
            await self._stack.enter_async_context(queue)
        await queue.submit(copy)


class _Facts(Batcher[Wish, Owners | Refusal]):
    """The writer of who owns what."""

    def __init__(self, databases: Databases) -> None:
        async def work(wishes: list[Wish]) -> list[Owners | Refusal]:
            answers: list[Owners | Refusal] = []
            for some in portions(wishes, lambda wish: wish.size, most=MAX_SLOTS_PER_CALL):
                answers += await assign_slots(databases, some)
            return answers

        super().__init__("queue of slots", "share", work, max_batch=MAX_WISHES_PER_CALL)


class _Copies(Batcher[Copy, None]):
    """The writer of one region's copies."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        async def work(copies: list[Copy]) -> list[None]:
            for some in portions(copies, lambda copy: len(copy.numbers), most=MAX_SLOTS_PER_CALL):
                await copy_slots(databases, region, some)
            return [None] * len(copies)

        name = f"queue of slots for {region}"
        super().__init__(name, "share", work, max_batch=MAX_WISHES_PER_CALL)
