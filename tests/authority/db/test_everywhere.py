"""Reads across regions go on without the one whose database hangs, and name it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from durable.authority.audit.chain import verify_all
from durable.authority.audit.events import read_events
from durable.authority.db import breaker
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.regions import list_regions, read_region
from durable.authority.migrations import upgrade, upgrade_all
from durable.authority.reads.census import take_census
from durable.authority.reads.invariants import check_invariants
from durable.stack.postgres.server import EmbeddedPostgres
from tests.authority.world import EAST, TEST, WEST, World
from tests.frozen import frozen


@pytest.fixture
async def world(
    database_url: str, other_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """us-west is on a server of its own."""
    monkeypatch.setattr(breaker, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr(breaker, "PROBE_SECONDS", 2)
    west_url = other_postgres.ensure_database("everywhere")
    await asyncio.to_thread(upgrade, west_url, serves_global=False)
    async with Databases(database_url, {WEST: west_url}) as databases:
        yield await World(databases).with_two_regions()


async def test_who_does_not_answer_is_missing_and_keeps_nobody(
    world: World, other_postgres: EmbeddedPostgres
) -> None:
    databases = world.databases
    with frozen(other_postgres):
        async with asyncio.timeout(15):
            assert await list_regions(databases) == [EAST, WEST], "it is known by the settings"
            census = await take_census(databases)
            assert [one.region.region for one in census.regions] == [EAST]
            assert list(census.unreachable) == [WEST]
            violations, missing = await check_invariants(databases)
            assert (violations, list(missing)) == ([], [WEST])
            events, missing = await read_events(databases)
            assert events
            assert list(missing) == [WEST]
            reports, missing = await verify_all(databases)
            assert EAST in {report.head.chain for report in reports}
            assert list(missing) == [WEST]
            answers = await ask_regions([WEST, EAST], lambda region: read_region(databases, region))
            assert (list(answers.by_region), list(answers.unreachable)) == ([EAST], [WEST])
    urls = databases.urls
    with frozen(other_postgres):
        migrated, missing = await asyncio.to_thread(upgrade_all, urls[0], {WEST: urls[1]}, TEST)
        assert (migrated, list(missing)) == (1, [WEST])
