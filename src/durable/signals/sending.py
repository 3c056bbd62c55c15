"""Signals to many workflows, a bounded number at a time."""

import asyncio
import logging
from collections.abc import Iterable

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from durable.signals.payloads import Payload

log = logging.getLogger(__name__)

AT_ONCE = 16
RPC_SECONDS = 10


class SignalSender:
    """Sends signals; answers of each whether it is settled or worth another try."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._room = asyncio.Semaphore(AT_ONCE)

    async def send_all(self, signals: Iterable[tuple[str, str, Payload]]) -> list[bool]:
        """Whether each (workflow id, name, payload) was delivered, or never can be."""
        return await asyncio.gather(*(self._send(*signal) for signal in signals))

    async def _send(self, workflow_id: str, name: str, payload: Payload) -> bool:
        async with self._room:
            try:
                async with asyncio.timeout(RPC_SECONDS):
                    handle = self._client.get_workflow_handle(workflow_id)
                    await handle.signal(name, payload)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return True  # it has ended: nothing is left to hear it
                log.warning("could not signal %s: %s", workflow_id, error.message)
                return False
            except TimeoutError:
                log.warning("could not signal %s in %s s", workflow_id, RPC_SECONDS)
                return False
        return True
