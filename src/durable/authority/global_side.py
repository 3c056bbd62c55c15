"""What the global worker writes through: the queues of admissions and of slots."""

from contextlib import AsyncExitStack
from typing import Self

from durable.authority.db.connection import Databases
from durable.authority.slots.slot_queue import SlotQueue
from durable.authority.workloads.admission_queue import AdmissionQueue


class GlobalSide:
    """The global side, while a worker serves it; `async with` starts and drains its queues."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases
        self.admissions = AdmissionQueue(databases)
        self.slots = SlotQueue(databases)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.admissions)
        await self._stack.enter_async_context(self.slots)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
