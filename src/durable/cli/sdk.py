"""How commands reach the control plane: the SDK on these settings, inside one event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from durable.cli.connections import person
from durable.cli.input.options import load_settings
from durable.client import Durable

T = TypeVar("T")


def with_durable(state_dir: Path | None, work: Callable[[Durable], Awaitable[T]]) -> T:
    """Runs `work` as the person at this terminal, and closes its connections."""
    settings = load_settings(state_dir)

    async def run() -> T:
        async with await Durable.connect(settings, actor=person()) as durable:
            return await work(durable)

    return asyncio.run(run())
