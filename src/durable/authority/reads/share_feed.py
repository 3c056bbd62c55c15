"""Following the shares of a region: what may have changed since last time, and all of it at times.

Bindings have versions, which are in the order of commits. Observations and requests take no region
lock and have only the moment of their write, and commits are not in the order of clocks: the feed
looks some seconds back each time. As long as the sum of all moments there is the same, nothing was
written, and that is all that is read; else it is the shares whose own sum differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import STATEMENT_TIMEOUT_SECONDS, Databases, transact
from durable.authority.fleet.regions import unknown_region
from durable.authority.reads.shares import (
    RequestStatus,
    ShareKey,
    ShareStatus,
    read_shares,
    read_those_shares,
)
from durable.model.ids import RegionId

__all__ = ["RequestStatus", "ShareStatus", "StatusFeed", "read_shares"]

# Longer than a statement may take between its write and its commit.
OVERLAP = timedelta(seconds=STATEMENT_TIMEOUT_SECONDS + 5)

# A clock that is given may be ahead of the one that stamps writes, or behind it: the lesser looks
# back far enough. Two sums of one moment: to compare with the last look, and for the next one,
# whose window begins later.
_LOOK = text("""
    WITH clock AS (
        SELECT version, least(CAST(:now AS timestamptz), clock_timestamp()) AS at,
               least(CAST(:now AS timestamptz), clock_timestamp()) - CAST(:overlap AS interval)
                   AS next_since
          FROM regional.regions WHERE region = :region
    ), writes AS (
        SELECT received_at AS at FROM regional.observations
         WHERE region = :region AND received_at > least(:since, (SELECT next_since FROM clock))
         UNION ALL
        SELECT changed_at FROM regional.requests
         WHERE region = :region AND changed_at > least(:since, (SELECT next_since FROM clock))
    )
    SELECT version, clock.at,
           (SELECT sum(extract(epoch FROM at)) FROM writes WHERE at > :since) AS sum,
           (SELECT sum(extract(epoch FROM at)) FROM writes WHERE at > next_since) AS next_sum
      FROM clock
""")

# One statement, so that the version and everything up to it are of the same moment. A binding that
# changed is news by itself, and has no sum.
_NEWS = text("""
    WITH writes AS (
        SELECT r.tenant, r.workload, r.generation, o.received_at AS at
          FROM regional.observations AS o JOIN regional.reservations AS r USING (region, token)
         WHERE o.region = :region AND o.received_at > least(:since, :next_since)
         UNION ALL
        SELECT tenant, workload, generation, changed_at
          FROM regional.requests
         WHERE region = :region AND changed_at > least(:since, :next_since)
    )
    SELECT tenant, workload, generation, false AS is_binding,
           sum(extract(epoch FROM at)) FILTER (WHERE at > :since) AS sum,
           sum(extract(epoch FROM at)) FILTER (WHERE at > :next_since) AS next_sum
      FROM writes GROUP BY tenant, workload, generation
     UNION ALL
    SELECT DISTINCT r.tenant, r.workload, r.generation, true,
           CAST(NULL AS numeric), CAST(NULL AS numeric)
      FROM regional.bindings AS b JOIN regional.reservations AS r USING (region, token)
     WHERE b.region = :region AND b.changed_version > :version
""")

_FOREVER = datetime.max.replace(tzinfo=UTC)
_Sums = Mapping[ShareKey, Decimal | None]


@dataclass(frozen=True)
class _Point:
    """How far the feed has come: the version, since when it looks back, and the sums from there."""

    version: int
    since: datetime
    sum: Decimal | None
    of_shares: _Sums = field(default_factory=dict[ShareKey, Decimal | None])


class StatusFeed:
    """The shares of one region, for one follower; a call that failed is simply made again."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases = databases
        self._region = region
        self._point: _Point | None = None
        self._told: dict[ShareKey, ShareStatus] = {}

    def told(self, key: ShareKey) -> ShareStatus | None:
        """The share as it was told last."""
        return self._told.get(key)

    async def changed(self, *, now: datetime | None = None) -> list[ShareStatus]:
        """Each share that differs from what was told last, as a whole; at first, all of them.

        A lease that lapses writes nothing: only `everything` finds it.
        """
        before = self._point
        if before is None:
            return await self.everything(now=now)
        # What commits between this look and the read after it is read twice, never missed.
        is_news, point = await self._look(before, now)
        if not is_news:
            if point.sum is None:  # all of it is so long ago that it need not be summed any more
                self._point = point
            return []
        keys, of_shares = await self._news(before, point)
        read = await read_those_shares(self._databases, self._region, keys, now=now) if keys else []
        self._point = replace(point, of_shares=of_shares)
        news = [share for share in read if not share.says_the_same_as(self._told.get(share.key))]
        self._told.update((share.key, share) for share in news)
        return news

    async def everything(self, *, now: datetime | None = None) -> list[ShareStatus]:
        """Every share there is, and once more each that was told and is no longer there."""
        # Before anything is read: what commits meanwhile is read again, never missed.
        _, point = await self._look(None, now)
        _, of_shares = await self._news(point, point)
        shares = await read_shares(self._databases, self._region, now=now)
        found = {share.key for share in shares}
        gone = [key for key in self._told if key not in found]
        ended = await read_those_shares(self._databases, self._region, gone, now=now)
        self._point = replace(point, of_shares=of_shares)
        self._told = {share.key: share for share in shares}
        return [*shares, *ended]

    async def _look(self, last: _Point | None, now: datetime | None) -> tuple[bool, _Point]:
        """Whether anything was written since, and the point of this look."""
        since = _FOREVER if last is None else last.since
        of = {"region": self._region, "now": now, "since": since, "overlap": OVERLAP}

        async def work(connection: AsyncConnection) -> tuple[bool, _Point]:
            row = (await connection.execute(_LOOK, of)).one_or_none()
            if row is None:
                raise unknown_region(self._region)
            is_news = last is None or (row.version, row.sum) != (last.version, last.sum)
            return is_news, _Point(row.version, row.at - OVERLAP, row.next_sum)

        engine = self._databases.at_region(self._region, "durable_reader")
        return await transact(engine, work, doing=f"look at {self._region}")

    async def _news(self, last: _Point, point: _Point) -> tuple[list[ShareKey], _Sums]:
        """The shares of what was written since the last point, and their sums since this one."""
        of = {
            "region": self._region,
            "version": last.version,
            "since": last.since,
            "next_since": point.since,
        }

        async def work(connection: AsyncConnection) -> tuple[list[ShareKey], _Sums]:
            keys: set[ShareKey] = set()
            of_shares: dict[ShareKey, Decimal | None] = {}
            for row in await connection.execute(_NEWS, of):
                key = (row.tenant, row.workload, row.generation)
                if row.is_binding or row.sum != last.of_shares.get(key):
                    keys.add(key)
                if not row.is_binding:
                    of_shares[key] = row.next_sum
            return sorted(keys), of_shares

        engine = self._databases.at_region(self._region, "durable_reader")
        return await transact(engine, work, doing=f"read what changed in {self._region}")
