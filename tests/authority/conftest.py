"""Each test of the authority gets an empty world in a database of its own."""

from collections.abc import AsyncIterator

import pytest

from durable.authority.connection import Databases
from tests.authority.world import World


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with Databases(database_url) as databases:
        yield World(databases)
