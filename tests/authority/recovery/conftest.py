"""A world of two regions, of which one has a server of its own that can be stopped."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from durable.authority.db import breaker
from durable.authority.db.connection import Databases
from durable.authority.migrations import upgrade
from durable.stack.postgres.server import EmbeddedPostgres
from tests.authority.world import WEST, World

_numbers = itertools.count(1)


@pytest.fixture
async def apart(
    database_url: str, other_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """us-east beside the global side, and us-west on the other server."""
    monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(breaker, "PROBE_SECONDS", 2)
    west_url = other_postgres.ensure_database(f"west_{next(_numbers)}")
    await asyncio.to_thread(upgrade, west_url, serves_global=False)
    async with Databases(database_url, {WEST: west_url}) as databases:
        yield await World(databases).with_two_regions()
