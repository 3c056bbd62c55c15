"""Whoever waits learns what a deletion waits for, and is not kept longer for the reason."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from durable.authority.db.connection import Databases
from durable.cli.render.progress import WaitTarget
from durable.cli.render.waiting import REASON_SECONDS, wait_for_all
from durable.client import Durable
from durable.model.refusal import RefusalCode, RefusedError
from durable.resources.reader import Reader
from durable.settings import Settings
from tests.agent.waiting import eventually

from ..conftest import Write
from ..terminal import Terminal

WEB = """
tenant: shop
name: lingering
spec: {replicas: 1, resources: {cpu: 1, memory: 1Gi}}
"""


class Waiting(Reader):
    """A client whose deletion never ends."""

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


def until_asked_to_stop(plane: Path) -> None:
    async def wait() -> None:
        async with Databases(Settings(state_dir=plane).require_database_url()) as databases:

            async def is_asked() -> bool:
                return bool(await Reader(databases).stops("shop", "lingering"))

            await eventually("its slot is asked to stop", is_asked)

    asyncio.run(wait())


def test_a_deletion_says_whose_agent_it_waits_for(
    plane: Path, at_plane: Terminal, write: Write
) -> None:
    at_plane.json("apply", "-f", write(WEB))
    parts = at_plane.json("status")["parts"]
    agent = next(part["pid"] for part in parts if part["name"] == "agent")
    os.kill(agent, signal.SIGSTOP)
    try:
        assert at_plane.run("delete", "shop/lingering", "--no-wait") == 0, at_plane.stderr
        until_asked_to_stop(plane)
        said = at_plane.refused("delete", "shop/lingering", "--timeout", "2")
    finally:
        os.kill(agent, signal.SIGCONT)
    # On a slow machine the lease of the agent that stands still has lapsed meanwhile.
    assert "report the end of slot 0" in said or "the end of slot 0 on " in said
    assert "given up " in said
    assert at_plane.run("delete", "shop/lingering") == 0, at_plane.stderr
