"""Drains for services and commands: begun, followed and cancelled.

drain = await durable.drains.start(target, reason="kernel upgrade", request_id="CHG-7")
async for now, progress in durable.drains.follow(drain): ...
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WithStartWorkflowOperation

from durable.authority.db.connection import Databases
from durable.authority.drains.progress import read_progress
from durable.authority.drains.rows import read_drain, read_running
from durable.model.fleet.drain import (
    DEFAULT_DEADLINE,
    Drain,
    DrainProgress,
    DrainState,
    NodesTarget,
)
from durable.model.ids import ActorId
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.drains import CancelDrain, DrainNodes
from durable.signals.names import DRAIN, drain_id
from durable.signals.payloads import OperatorRequest
from durable.signals.starting import drain_options
from durable.temporal.signing import Signer
from durable.temporal.updates import StartedUpdates, send_until_answered

POLL_SECONDS = 0.5


class Drains:
    """The drains of all regions."""

    def __init__(
        self, client: Client, databases: Databases, actor: ActorId, signer: Signer
    ) -> None:
        self._client, self._databases, self._actor = client, databases, actor
        self._updates = StartedUpdates(client, signer)

    async def start(
        self,
        target: NodesTarget,
        *,
        reason: str,
        request_id: str,
        deadline: timedelta = DEFAULT_DEADLINE,
        wait_for_jobs: bool = False,
    ) -> Drain:
        """Cordons the nodes and has what runs there replaced; sent again, it counts once."""
        order = DrainNodes(
            actor=self._actor,
            reason=reason,
            request_id=request_id,
            deadline=deadline,
            wait_for_jobs=wait_for_jobs,
        )
        await send_until_answered(
            f"drain {target}", lambda: self._update_with_start(target, "drain", order)
        )
        drain = await read_drain(self._databases, target.region, request_id)
        assert drain is not None, "it was answered after it was recorded"
        return drain

    async def cancel(self, target: NodesTarget, *, reason: str, request_id: str) -> str:
        """Replaces nothing more, and undoes the cordon; refused if nothing drains."""
        message = CancelDrain(actor=self._actor, reason=reason, request_id=request_id)
        if await read_running(self._databases, target.region, target) is None:
            raise RefusedError(
                RefusalCode.UNKNOWN_DRAIN,
                f"{drain_id(target)} does not run; see `durable get drains`.",
            )
        return await send_until_answered(
            f"cancel {drain_id(target)}",
            # With a start: one that was terminated goes on, and then hears of it.
            lambda: self._update_with_start(target, "cancel", message),
            unknown=RefusalCode.UNKNOWN_DRAIN,
            see="durable get drains",
        )

    async def follow(self, drain: Drain) -> AsyncIterator[tuple[Drain, DrainProgress]]:
        """The drain and what is left whenever that differs, until it has ended."""
        region, last = drain.target.region, None
        while True:
            now = await read_drain(self._databases, region, drain.request)
            assert now is not None, "a drain keeps its row"
            seen = (now, await read_progress(self._databases, region, now))
            if seen != last:
                last = seen
                yield seen
            if now.state is not DrainState.DRAINING:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def wait(self, drain: Drain, *, within_seconds: float | None = None) -> Drain:
        """The drain when it has ended, however it did."""
        async with asyncio.timeout(within_seconds):
            async for now, _ in self.follow(drain):
                drain = now
        return drain

    async def _update_with_start(
        self, target: NodesTarget, update: str, message: OperatorRequest
    ) -> str:
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            DRAIN, {"target": target}, **drain_options(target)
        )
        return await self._updates.send(start, drain_id(target), update, message, str)
