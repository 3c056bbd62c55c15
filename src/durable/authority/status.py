"""Following the shares of a region: what may have changed since last time, and all of it at times.

Bindings have versions, which are in the order of commits. Observations and requests take no region
lock and have only the moment of their write, and commits are not in the order of clocks: the feed
looks some seconds back each time, and remembers what it saw there.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.connection import STATEMENT_TIMEOUT_SECONDS, Databases, transact
from durable.authority.regions import unknown_region
from durable.authority.shares import (
    RequestStatus,
    ShareKey,
    ShareStatus,
    SlotStatus,
    read_shares,
    read_those_shares,
)
from durable.model.ids import RegionId

__all__ = ["RequestStatus", "ShareStatus", "SlotStatus", "StatusFeed", "read_shares"]

# Longer than a statement may take between its write and its commit.
OVERLAP = timedelta(seconds=STATEMENT_TIMEOUT_SECONDS + 5)

# One statement, so that the version and everything up to it are of the same moment. A clock that
# is given may be ahead of the one that stamps writes, or behind it: the lesser looks back enough.
_NEWS = text("""
    SELECT 'region' AS kind, NULL AS tenant, NULL AS workload, version AS number, 0 AS token,
           least(CAST(:now AS timestamptz), clock_timestamp()) AS at
      FROM regional.regions WHERE region = :region
     UNION ALL
    SELECT 'binding', r.tenant, r.workload, r.generation, b.token, b.bound_at
      FROM regional.bindings AS b JOIN regional.reservations AS r USING (region, token)
     WHERE b.region = :region AND b.changed_version > :version
     UNION ALL
    SELECT 'observation', r.tenant, r.workload, r.generation, o.token, o.received_at
      FROM regional.observations AS o JOIN regional.reservations AS r USING (region, token)
     WHERE o.region = :region AND o.received_at > :since
     UNION ALL
    SELECT 'request', tenant, workload, generation, 0, changed_at
      FROM regional.requests WHERE region = :region AND changed_at > :since
""")

_NOW = text("""
    SELECT version, least(CAST(:now AS timestamptz), clock_timestamp()) AS at
      FROM regional.regions WHERE region = :region
""")

# One write that has no version: of which share, which binding, and when.
_Mark = tuple[ShareKey, int, datetime]


@dataclass(frozen=True)
class _Point:
    """How far the feed has come."""

    version: int
    at: datetime
    marks: frozenset[_Mark] = frozenset()


class StatusFeed:
    """The shares of one region, for one follower; a call that failed is simply made again."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases = databases
        self._region = region
        self._point: _Point | None = None
        self._told: dict[ShareKey, ShareStatus] = {}

    async def changed(self, *, now: datetime | None = None) -> list[ShareStatus]:
        """Each share that differs from what was told last, as a whole; at first, all of them.

        A lease that lapses writes nothing: only `everything` finds it.
        """
        if self._point is None:
            return await self.everything(now=now)
        point, keys = await self._news(self._point, now)
        read = await read_those_shares(self._databases, self._region, keys, now=now) if keys else []
        self._point = point
        news = [share for share in read if not share.says_the_same_as(self._told.get(share.key))]
        self._told.update((share.key, share) for share in news)
        return news

    async def everything(self, *, now: datetime | None = None) -> list[ShareStatus]:
        """Every share there is, and once more each that was told and is no longer there."""
        point = await self._begin(now)
        shares = await read_shares(self._databases, self._region, now=now)
        found = {share.key for share in shares}
        gone = [key for key in self._told if key not in found]
        ended = await read_those_shares(self._databases, self._region, gone, now=now)
        self._point = point
        self._told = {share.key: share for share in shares}
        return [*shares, *ended]

    async def _begin(self, now: datetime | None) -> _Point:
        """Where to go on after a full read that begins now: before anything of it is read."""

        async def work(connection: AsyncConnection) -> _Point:
            found = await connection.execute(_NOW, {"region": self._region, "now": now})
            row = found.one_or_none()
            if row is None:
                raise unknown_region(self._region)
            return _Point(row.version, row.at)

        engine = self._databases.at_region(self._region, "durable_reader")
        return await transact(engine, work, doing=f"read {self._region}")

    async def _news(self, point: _Point, now: datetime | None) -> tuple[_Point, list[ShareKey]]:
        since = {"version": point.version, "since": point.at - OVERLAP}

        async def work(connection: AsyncConnection) -> tuple[_Point, list[ShareKey]]:
            of = {"region": self._region, "now": now, **since}
            keys: set[ShareKey] = set()
            marks: set[_Mark] = set()
            version, at = point.version, point.at
            for row in await connection.execute(_NEWS, of):
                if row.kind == "region":
                    version, at = row.number, row.at
                    continue
                key = (row.tenant, row.workload, row.number)
                if row.kind == "binding":
                    keys.add(key)
                else:
                    marks.add((key, row.token, row.at))
            keys |= {mark[0] for mark in marks - point.marks}
            return _Point(version, at, frozenset(marks)), sorted(keys)

        engine = self._databases.at_region(self._region, "durable_reader")
        return await transact(engine, work, doing=f"read what changed in {self._region}")
