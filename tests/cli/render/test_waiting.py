"""Whoever waited too long is not kept longer for the reason."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from durable.authority.db.connection import Databases
from durable.cli.render.progress import WaitTarget
from durable.cli.render.waiting import REASON_SECONDS, wait_for_all
from durable.client import Durable
from durable.model.refusal import RefusalCode, RefusedError


class Waiting:
    """A client whose deletion never ends."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases

    async def progress(self, *_: str, **__: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield


async def test_a_silent_database_does_not_keep_whoever_waited_too_long() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    targets = [
        WaitTarget("shop", name, "deleted") for name in ("web", "api", "job", "cron", "batch")
    ]
    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Databases(f"postgresql://me:me@127.0.0.1:{port}/durable") as databases:
        began = time.monotonic()
        with pytest.raises(RefusedError) as refused:
            await wait_for_all(cast(Durable, Waiting(databases)), targets, 0.1)
        took_seconds = time.monotonic() - began

    assert refused.value.refusal.code is RefusalCode.TIMED_OUT
    # One look at each, all at once.
    assert took_seconds < len(targets) * REASON_SECONDS
