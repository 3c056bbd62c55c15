"""How a cache notices change: notifications as hints, and a cheap poll for what has none."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import psycopg
from sqlalchemy import text

from durable.authority.cache.region_read import ROOM
from durable.authority.db.connection import STATEMENT_TIMEOUT_SECONDS, open_session
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import explained
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.model.ids import RegionId
from durable.model.resources import Amounts


@dataclass(frozen=True, slots=True)
class LeasePoll:
    """LeasePoll as three lists of one length; expiries are seconds since the epoch."""

    epoch: int
    version: int
    read_at: float
    room: Amounts
    nodes: list[str]
    lease_epochs: list[int]
    lease_expiries: list[float]


_POLL = text(f"""
    SELECT r.epoch, r.version, clock_timestamp() AS read_at, {ROOM},
           l.nodes, l.epochs, l.expiries
      FROM regional.regions AS r
     CROSS JOIN LATERAL (
           SELECT coalesce(array_agg(node), '{{}}') AS nodes,
                  coalesce(array_agg(epoch), '{{}}') AS epochs,
                  coalesce(array_agg(extract(epoch FROM expires_at)::float8), '{{}}') AS expiries
             FROM regional.node_leases WHERE region = r.region) AS l
     WHERE r.region = :region
""")


@regional_transaction("durable_reader", "read the leases of {region}")
async def poll_leases(connection: AsyncConnection, region: RegionId) -> LeasePoll:
    """The region's leases, room and version, as of one moment of its clock."""
    row = (await connection.execute(_POLL, {"region": region})).one_or_none()
    if row is None:
        raise unknown_region(region)
    room = (row.room_cpu_millis, row.room_memory_mib, row.room_gpus)
    return LeasePoll(
        row.epoch, row.version, row.read_at.timestamp(), room, row.nodes, row.epochs, row.expiries
    )


_PAYLOAD = re.compile(r"([a-z0-9-]+) ([0-9]{1,19}) ([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RegionChange:
    """A region moved to this version; with `is_resync`, changes may have been missed before it."""

    region: RegionId
    epoch: int
    version: int
    is_resync: bool = False


async def watch(
    url: str, regions: frozenset[RegionId], *, resync_seconds: float
) -> AsyncGenerator[RegionChange, None]:
    """Yields every change of these regions that it is notified of, and a resync every period.

    A notification is a hint to read, never a fact: a forged one causes a read, and no more.

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
                        if change is not None and change.region in regions:
                            yield change


async def _versions(
    connection: psycopg.AsyncConnection, regions: frozenset[RegionId]
) -> list[RegionChange]:
    rows = await connection.execute(
        "SELECT region, epoch, version FROM regional.regions WHERE region = ANY(%s)",
        [sorted(str(region) for region in regions)],
    )
    return [RegionChange(RegionId(r), epoch, version, True) async for r, epoch, version in rows]


def _parse(payload: str) -> RegionChange | None:
    """None for what no region of ours sent: every login may notify, and with whatever it likes."""
    match = _PAYLOAD.fullmatch(payload)
    return None if match is None else RegionChange(RegionId(match[1]), int(match[2]), int(match[3]))
