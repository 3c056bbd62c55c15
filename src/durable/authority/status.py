"""Following the shares of a region: what may have changed since last time, and all of it at times.

Bindings have versions, which are in the order of commits. Observations and requests take no region
lock and have only the moment of their write, and commits are not in the order of clocks: the feed
looks some seconds back each time, and remembers what it saw there. As long as the sum of all those
moments is the same, nothing was written, and that is all that is read.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

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

# One statement, so that the version and everything up to it are of the same moment.
_NEWS = text("""
    SELECT 'binding' AS kind, r.tenant, r.workload, r.generation, b.token, b.bound_at AS at
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

# One write that has no version: of which share, which binding, and when.
_Mark = tuple[ShareKey, int, datetime]
_FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class _Point:
    """How far the feed has come: the version, since when it looks back, and what it saw there."""

    version: int
    since: datetime
    sum: Decimal | None
    marks: frozenset[_Mark] = frozenset()


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
            self._point = replace(point, marks=before.marks)
            return []
        keys, marks = await self._news(before)
        read = await read_those_shares(self._databases, self._region, keys, now=now) if keys else []
        self._point = replace(point, marks=marks)
        news = [share for share in read if not share.says_the_same_as(self._told.get(share.key))]
        self._told.update((share.key, share) for share in news)
        return news

    async def everything(self, *, now: datetime | None = None) -> list[ShareStatus]:
        """Every share there is, and once more each that was told and is no longer there."""
        # Before anything is read: what commits meanwhile is read again, never missed.
        _, point = await self._look(None, now)
        shares = await read_shares(self._databases, self._region, now=now)
        found = {share.key for share in shares}
        gone = [key for key in self._told if key not in found]
        ended = await read_those_shares(self._databases, self._region, gone, now=now)
        self._point = point
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

    async def _news(self, last: _Point) -> tuple[list[ShareKey], frozenset[_Mark]]:
        """The shares of what was written since, and the writes that have no version."""
        of = {"region": self._region, "version": last.version, "since": last.since}

        async def work(connection: AsyncConnection) -> tuple[list[ShareKey], frozenset[_Mark]]:
            keys: set[ShareKey] = set()
            marks: set[_Mark] = set()
            for row in await connection.execute(_NEWS, of):
                key = (row.tenant, row.workload, row.generation)
                if row.kind == "binding":
                    keys.add(key)
                else:
                    marks.add((key, row.token, row.at))
            keys |= {mark[0] for mark in marks - last.marks}
            return sorted(keys), frozenset(marks)

        engine = self._databases.at_region(self._region, "durable_reader")
        return await transact(engine, work, doing=f"read what changed in {self._region}")
