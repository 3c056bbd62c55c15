"""Drains for services and commands: begun, followed and cancelled.

drain = await durable.drains.start(target, reason="kernel upgrade", request_id="CHG-7")
async for row in durable.drains.follow(drain): ...
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Unpack

from durable.authority.drains.progress import read_progress
from durable.authority.drains.rows import read_drain
from durable.model.fleet.drain import DEFAULT_DEADLINE, Drain, NodesTarget
from durable.resources.orders import DrainRow, drain_row
from durable.resources.reader import changes
from durable.temporal.sender import MessageSender, OrderFields, request_id_of


class Drains:
    """The drains of all regions."""

    def __init__(self, sender: MessageSender) -> None:
        self._sender, self._databases = sender, sender.databases

    async def start(
        self,
        target: NodesTarget,
        *,
        deadline: timedelta = DEFAULT_DEADLINE,
        wait_for_jobs: bool = False,
        **who: Unpack[OrderFields],
    ) -> Drain:
        """Cordons the nodes and has what runs there replaced; sent again, it counts once."""
        request = request_id_of(who.pop("request_id", None))
        order = {"deadline": deadline, "wait_for_jobs": wait_for_jobs, "request_id": request}
        await self._sender.send(target, "drain", **who, **order)
        drain = await read_drain(self._databases, target.region, request)
        assert drain is not None, "it was answered after it was recorded"
        return drain

    async def cancel(self, target: NodesTarget, **who: Unpack[OrderFields]) -> str:
        """Replaces nothing more, and uncordons the nodes; refused if nothing drains."""
        return await self._sender.send(target, "cancel", **who)

    def follow(self, drain: Drain) -> AsyncIterator[DrainRow]:
        """The drain and what is left whenever that differs, until it has ended."""
        return changes(lambda: self._read(drain), lambda row: row.ended_at is not None)

    async def _read(self, drain: Drain) -> DrainRow:
        region = drain.target.region
        now = await read_drain(self._databases, region, drain.request)
        assert now is not None, "a drain keeps its row"
        return drain_row(now, await read_progress(self._databases, region, now))

    async def wait(self, drain: Drain, *, within_seconds: float | None = None) -> Drain:
        """The drain when it has ended, however it did."""
        async with asyncio.timeout(within_seconds):
            async for row in self.follow(drain):
                drain = row
        return drain
