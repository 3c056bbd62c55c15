"""Slots assigned through queues: one for the owners and one for each region's copies.

A region that does not answer delays only those that want slots there.
"""

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Self

from durable.authority.db.batching import Batcher, chunks
from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import read_region
from durable.authority.slots.assignment import (
    SlotAssignment,
    SlotCopies,
    SlotOwners,
    assign_slots,
    copy_slots,
)
from durable.model.ids import RegionId
from durable.model.refusal import Refusal, RefusedError

MAX_ASSIGNMENTS_PER_CALL = 500
MAX_SLOTS_PER_CALL = 20_000


class SlotQueue:
    """Assigns slots; `async with` runs it, and leaving it waits for the last batches."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self._owners = _OwnerWriter(databases)
        self._copies: dict[RegionId, _CopyWriter] = {}
        # Regions are never removed.
        self._regions: set[RegionId] = set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._owners)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def assign(self, assignment: SlotAssignment) -> SlotOwners:
        """Who owns what of the workload, once every region holds what it owns of the assignment."""
        for region in assignment.share.keys() - self._regions:
            await read_region(self.databases, region)  # refuses an unknown one
            self._regions.add(region)
        owners = await self._owners.submit(assignment)
        if isinstance(owners, Refusal):
            raise RefusedError(owners.code, owners.sentence)
        held: dict[RegionId, dict[int, int]] = defaultdict(dict)
        for region, slots in assignment.share.items():
            for slot in slots:
                if owners[slot].region == region:
                    held[region][slot] = owners[slot].number
        await asyncio.gather(
            *(
                self._copy(region, SlotCopies(assignment.tenant, assignment.workload, numbers))
                for region, numbers in held.items()
            )
        )
        return owners

    async def _copy(self, region: RegionId, copies: SlotCopies) -> None:
        queue = self._copies.get(region)
        if queue is None:
            # Registered before it runs: callers that come meanwhile use the same queue.
            queue = self._copies[region] = _CopyWriter(self.databases, region)
            await self._stack.enter_async_context(queue)
        await queue.submit(copies)


class _OwnerWriter(Batcher[SlotAssignment, SlotOwners | Refusal]):
    """Writes which region owns which slots."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        super().__init__(
            "queue of slots", "share", self._assign, max_batch=MAX_ASSIGNMENTS_PER_CALL
        )

    async def _assign(self, assignments: list[SlotAssignment]) -> list[SlotOwners | Refusal]:
        owners: list[SlotOwners | Refusal] = []
        for some in chunks(assignments, lambda one: one.size, most=MAX_SLOTS_PER_CALL):
            owners += await assign_slots(self._databases, some)
        return owners


class _CopyWriter(Batcher[SlotCopies, None]):
    """Writes one region's copies."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases, self._region = databases, region
        name = f"queue of slots for {region}"
        super().__init__(name, "share", self._copy, max_batch=MAX_ASSIGNMENTS_PER_CALL)

    async def _copy(self, copies: list[SlotCopies]) -> list[None]:
        for some in chunks(copies, lambda one: len(one.numbers), most=MAX_SLOTS_PER_CALL):
            await copy_slots(self._databases, self._region, some)
        return [None] * len(copies)
