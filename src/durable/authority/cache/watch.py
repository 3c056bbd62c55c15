"""Watching regions by version: a notification is a hint, and every gap ends in a full read."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import psycopg

from durable.authority.db.connection import STATEMENT_TIMEOUT_SECONDS
from durable.authority.db.errors import explained
from durable.authority.db.session import open_session
from durable.model.ids import RegionId

CHANNEL = "durable_regions"


@dataclass(frozen=True, slots=True)
class Change:
    """A region moved to this version; with `is_resync`, changes may have been missed before it."""

    region: RegionId
    epoch: int
    version: int
    is_resync: bool = False


async def watch(
    url: str, regions: frozenset[RegionId], *, resync_seconds: float
) -> AsyncGenerator[Change, None]:
    """Yields every change of these regions that it is notified of, and a resync every period.

    It begins with a resync of each region, after LISTEN: what committed before is in the full read
    that follows, and what commits after is notified. A lost connection ends it with an error; the
    caller watches again and so begins with a resync.
    """
    with explained("watch the authority"):
        async with await open_session(url, "durable_watch") as connection:
            async with asyncio.timeout(STATEMENT_TIMEOUT_SECONDS):
                await connection.execute("SET ROLE durable_reader")
                await connection.execute("LISTEN durable_regions")
            while True:
                async with asyncio.timeout(STATEMENT_TIMEOUT_SECONDS):
                    changes = await _versions(connection, regions)
                for change in changes:
                    yield change
                # Closed explicitly: it holds the connection's lock, and a caller who stops in the
                # middle of it would wait for that lock to close the connection.
                async with aclosing(connection.notifies(timeout=resync_seconds)) as notifications:
                    async for notification in notifications:
                        change = _parse(notification.payload)
                        if change.region in regions:
                            yield change


async def _versions(
    connection: psycopg.AsyncConnection, regions: frozenset[RegionId]
) -> list[Change]:
    rows = await connection.execute(
        "SELECT region, epoch, version FROM regional.regions WHERE region = ANY(%s)",
        [sorted(str(region) for region in regions)],
    )
    return [Change(RegionId(r), epoch, version, True) async for r, epoch, version in rows]


def _parse(payload: str) -> Change:
    region, epoch, version = payload.split(" ")
    return Change(RegionId(region), int(epoch), int(version))
