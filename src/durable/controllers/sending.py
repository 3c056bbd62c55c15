"""Signals to many workflows, a bounded number at a time."""

import asyncio
import logging
from collections.abc import Iterable

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from durable.signals.messages import Message

log = logging.getLogger(__name__)

AT_ONCE = 16
RPC_SECONDS = 10


class Sender:
    """Sends signals; says of each whether it is settled or worth another try."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._room = asyncio.Semaphore(AT_ONCE)

    async def send_all(self, letters: Iterable[tuple[str, str, Message]]) -> list[bool]:
        """Whether each (workflow id, name, message) was delivered, or never can be."""
        return await asyncio.gather(*(self._send(*letter) for letter in letters))

    async def _send(self, workflow_id: str, name: str, message: Message) -> bool:
        async with self._room:
            try:
                async with asyncio.timeout(RPC_SECONDS):
                    handle = self._client.get_workflow_handle(workflow_id)
                    await handle.signal(name, message)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return True  # it has ended: nobody is there to be told
                log.warning("could not signal %s: %s", workflow_id, error.message)
                return False
            except TimeoutError:
                log.warning("could not signal %s in %s s", workflow_id, RPC_SECONDS)
                return False
        return True
