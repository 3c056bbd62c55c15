"""How commands reach the authority: the databases of the settings, inside one event loop."""

import asyncio
import getpass
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from durable.authority.db.connection import Databases
from durable.cli.input.options import load_settings
from durable.model.ids import ActorId

T = TypeVar("T")


def with_authority(state_dir: Path | None, work: Callable[[Databases], Awaitable[T]]) -> T:
    """Runs `work` against the authority of these settings, and closes its connections."""
    settings = load_settings(state_dir)
    urls = settings.require_database_url(), settings.regional_database_urls

    async def run() -> T:
        async with Databases(*urls) as databases:
            return await work(databases)

    return asyncio.run(run())


def person() -> ActorId:
    """Who sits at this terminal, for the audit."""
    name = re.sub("[^a-z0-9]+", "-", getpass.getuser().lower()).strip("-")
    return ActorId(f"person:{name or 'unknown'}")
