"""Whoever follows a region hears of every version, and of every gap."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
import pytest

from durable.authority.cache.watch import RegionChange, watch
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.fleet.cordons import cordon_nodes
from durable.authority.fleet.regions import read_region
from durable.authority.recovery.fence import fence
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import NodeId, RegionId
from tests.authority.world import EAST, TEST, WEST, World

NEVER = 3600.0
WATCHERS = """
    SELECT state FROM pg_stat_activity
     WHERE application_name = 'durable_watch' AND datname = current_database()
"""


@asynccontextmanager
async def watching(
    world: World, *regions: RegionId, resync_seconds: float = NEVER
) -> AsyncGenerator[AsyncGenerator[RegionChange]]:
    url = world.databases.urls[0]
    changes = watch(url, frozenset(regions or (EAST,)), resync_seconds=resync_seconds)
    try:
        yield changes
    finally:
        async with asyncio.timeout(5):
            await changes.aclose()


async def version_of(world: World, region: RegionId = EAST) -> int:
    return (await read_region(world.databases, region)).version


async def test_a_watch_begins_with_a_resync_of_every_region(neighbours: World) -> None:
    async with watching(neighbours, EAST, WEST, RegionId("nowhere")) as changes:
        changes_seen = {await anext(changes), await anext(changes)}
    assert changes_seen == {
        RegionChange(EAST, 1, await version_of(neighbours, EAST), is_resync=True),
        RegionChange(WEST, 1, await version_of(neighbours, WEST), is_resync=True),
    }


async def test_every_commit_is_notified_in_order(ready_world: World) -> None:
    async with watching(ready_world) as changes:
        first = await anext(changes)
        made = [(await ready_world.granted(ready_world.reserve(slot))).version for slot in range(5)]
        await cordon_nodes(
            ready_world.databases,
            NodesTarget.of_node(EAST, NodeId("n1")),
            actor=TEST,
            reason="a fan",
        )
        changes_seen = [await anext(changes) for _ in range(6)]
    assert [change.version for change in changes_seen] == [*made, made[-1] + 1]
    assert [change.version for change in changes_seen] == list(
        range(first.version + 1, first.version + 7)
    )
    assert {(change.region, change.epoch, change.is_resync) for change in changes_seen} == {
        (EAST, 1, False)
    }


async def test_a_fence_is_notified_with_its_epoch(ready_world: World) -> None:
    async with watching(ready_world) as changes:
        await anext(changes)
        await fence(ready_world.databases, EAST, expected_epoch=1, actor=TEST, reason="a drill")
        status = await read_region(ready_world.databases, EAST)
        assert await anext(changes) == RegionChange(EAST, 2, status.version)


async def test_what_was_refused_or_rolled_back_is_not_notified(ready_world: World) -> None:
    async with watching(ready_world) as changes:
        await anext(changes)
        await ready_world.refused(ready_world.reserve(node="nowhere"))
        with psycopg.connect(ready_world.databases.urls[0]) as owner:
            owner.execute("UPDATE regional.regions SET version = version + 1")
            owner.rollback()
        granted = await ready_world.granted(ready_world.reserve(1))
        assert (await anext(changes)).version == granted.version


async def test_other_regions_are_not_notified(neighbours: World) -> None:
    async with watching(neighbours, WEST) as changes:
        await anext(changes)
        for region, name in ((EAST, "e1"), (WEST, "w1")):
            target = NodesTarget.of_node(region, NodeId(name))
            await cordon_nodes(neighbours.databases, target, actor=TEST, reason="a fan")
        assert (await anext(changes)).region == WEST


async def test_a_period_without_news_ends_in_a_resync(ready_world: World) -> None:
    async with watching(ready_world, resync_seconds=0.01) as changes:
        changes_seen = [await anext(changes) for _ in range(3)]
    assert (
        changes_seen == [RegionChange(EAST, 1, await version_of(ready_world), is_resync=True)] * 3
    )


async def test_a_follower_may_stop_in_the_middle_of_the_news(ready_world: World) -> None:
    async with watching(ready_world) as changes:
        await anext(changes)
        for slot in range(3):
            await ready_world.granted(ready_world.reserve(slot))
        assert not (await anext(changes)).is_resync
        async with asyncio.timeout(5):
            await changes.aclose()


async def test_a_lost_connection_ends_in_one_sentence(ready_world: World) -> None:
    async with watching(ready_world) as changes:
        await anext(changes)
        with psycopg.connect(ready_world.databases.urls[0], autocommit=True) as owner:
            ended = owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'durable_watch' AND datname = current_database()"
            ).fetchall()
        assert ended == [(True,)]
        with pytest.raises(AuthorityUnreachableError, match="Could not watch the authority"):
            await anext(changes)


async def test_no_transaction_stays_open_while_nothing_is_notified(ready_world: World) -> None:
    async with watching(ready_world) as changes:
        await anext(changes)
        with psycopg.connect(ready_world.databases.urls[0]) as owner:
            assert owner.execute(WATCHERS).fetchall() == [("idle",)]


MALFORMED = [
    "", "nonsense", "us-east", "us-east 1", "us-east 1 x", "us-east 1 2 3", "us-east -1 2",
    "us-east 1 " + "9" * 5_000, "us-east ١ ٢", "\nus-east 1 2",  # noqa: RUF001
]  # fmt: skip


def notify(world: World, *payloads: str) -> None:
    """As the role that may only read."""
    with psycopg.connect(world.databases.urls[0], autocommit=True) as reader:
        reader.execute("SET ROLE durable_reader")
        for payload in payloads:
            reader.execute("SELECT pg_notify('durable_regions', %s)", [payload])


async def test_a_malformed_notification_ends_no_watch(ready_world: World) -> None:
    async with watching(ready_world) as changes:
        await anext(changes)
        notify(ready_world, *MALFORMED)
        granted = await ready_world.granted(ready_world.reserve())
        assert (await anext(changes)).version == granted.version
