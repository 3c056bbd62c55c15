"""Shares as they change: a feed for one follower, and waiters inside the same process."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.authority.reads.shares import (
    ShareKey,
    ShareStatus,
    read_shares,
    read_those_shares,
)
from durable.model.ids import RegionId
from durable.model.states import BindingState


@dataclass(frozen=True, slots=True)
class _Waiter:
    tokens: frozenset[int]
    passing: frozenset[BindingState]
    answer: "asyncio.Future[ShareStatus]"


class ShareWatch:
    """Shares whose placements wait right now; the one reader of the region publishes to them."""

    def __init__(self, most: int) -> None:
        """A waiter occupies one of its worker's slots for workflow tasks, which others may need."""
        self._most = most
        self._waiters: dict[ShareKey, _Waiter] = {}

    @property
    def keys(self) -> Iterable[ShareKey]:
        return tuple(self._waiters)

    async def wait_past(
        self,
        key: ShareKey,
        tokens: Iterable[int],
        passing: Iterable[BindingState],
        *,
        seconds: float,
    ) -> ShareStatus | None:
        """The share once none of these bindings is in a passing state; None if that is late."""
        if len(self._waiters) >= self._most:
            return None
        answer: asyncio.Future[ShareStatus] = asyncio.get_running_loop().create_future()
        waiter = self._waiters[key] = _Waiter(frozenset(tokens), frozenset(passing), answer)
        try:
            # Not `wait_for`: what is published at the moment of the timeout still counts.
            await asyncio.wait({answer}, timeout=seconds)
            return answer.result() if answer.done() else None
        finally:
            if self._waiters.get(key) is waiter:
                del self._waiters[key]

    def publish(self, share: ShareStatus) -> bool:
        """Answers whether something waited for just this."""
        waiter = self._waiters.get(share.key)
        if waiter is None or waiter.answer.done():
            return False
        there = {slot.token: slot.state for slot in share.slots}
        # A binding that is missing was started after the share was read.
        states = [there.get(token, BindingState.BOUND) for token in waiter.tokens]
        if any(state in waiter.passing for state in states):
            return False
        waiter.answer.set_result(share)
        return True


# One statement, so that the version, the snapshot and the rows are of the same moment. The oldest
# transaction that may still have been open then bounds what the indexes have to search.
_LOOK = text("""
    WITH news AS (
        SELECT r.tenant, r.workload, r.generation
          FROM regional.observations AS o JOIN regional.reservations AS r USING (region, token)
         WHERE o.region = :region
           AND o.written_in >= pg_snapshot_xmin(CAST(:snapshot AS pg_snapshot))
           AND NOT pg_visible_in_snapshot(o.written_in, CAST(:snapshot AS pg_snapshot))
         UNION
        SELECT tenant, workload, generation FROM regional.requests
         WHERE region = :region
           AND written_in >= pg_snapshot_xmin(CAST(:snapshot AS pg_snapshot))
           AND NOT pg_visible_in_snapshot(written_in, CAST(:snapshot AS pg_snapshot))
         UNION
        SELECT r.tenant, r.workload, r.generation
          FROM regional.bindings AS b JOIN regional.reservations AS r USING (region, token)
         WHERE b.region = :region AND b.changed_version > :version
    )
    SELECT g.version, CAST(pg_current_snapshot() AS text) AS snapshot,
           news.tenant, news.workload, news.generation
      FROM regional.regions AS g LEFT JOIN news ON true
     WHERE g.region = :region
""")


@dataclass(frozen=True)
class _Point:
    """How far the feed has come: the region's version, and the transactions that were visible."""

    version: int
    snapshot: str


class ShareFeed:
    """The shares of one region, for one follower; a call that failed is simply made again."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases = databases
        self._region = region
        self._point: _Point | None = None
        self._shares: dict[ShareKey, ShareStatus] = {}
        # Of each workload, the generations of which there is anything.
        self._generations: dict[tuple[str, str], set[int]] = {}

    def last(self, key: ShareKey) -> ShareStatus | None:
        """The share as it was last read."""
        return self._shares.get(key)

    def is_changing(self, share: ShareStatus) -> bool:
        """Whether the region has shares of more than one generation of its workload."""
        return len(self._generations.get(share.key[:2], ())) > 1

    async def changed(self, *, now: datetime | None = None) -> list[ShareStatus]:
        """Each share that differs from the last look, as a whole; at first, all of them.

        A lease that lapses writes nothing: only `everything` finds it.
        """
        if self._point is None:
            return await self.everything(now=now)
        # What commits between this look and the read after it is read twice, never missed.
        point, keys = await _look(self._databases, self._region, self._point)
        read = await read_those_shares(self._databases, self._region, keys, now=now) if keys else []
        self._point = point
        news = [share for share in read if not share.says_the_same_as(self.last(share.key))]
        self._shares.update((share.key, share) for share in news)
        self._count_generations(news)
        return news

    async def everything(self, *, now: datetime | None = None) -> list[ShareStatus]:
        """Every share there is, and once more each that was read before and is gone."""
        # Before anything is read: what commits meanwhile is read again, never missed.
        point, _ = await _look(self._databases, self._region, None)
        shares = await read_shares(self._databases, self._region, now=now)
        found = {share.key for share in shares}
        gone = [key for key in self._shares if key not in found]
        ended = await read_those_shares(self._databases, self._region, gone, now=now)
        self._point = point
        self._shares = {share.key: share for share in shares}
        self._generations.clear()
        self._count_generations(shares)
        return [*shares, *ended]

    def _count_generations(self, shares: Iterable[ShareStatus]) -> None:
        for share in shares:
            tenant, workload, generation = share.key
            known = self._generations.setdefault((tenant, workload), set())
            if share.has_ended:
                known.discard(generation)
            else:
                known.add(generation)


@regional_transaction("durable_reader", "read what changed in {region}")
async def _look(
    connection: AsyncConnection, region: RegionId, last: _Point | None
) -> tuple[_Point, list[ShareKey]]:
    """The point of this look, and the shares of which anything was written since the last."""
    since = {"snapshot": last and last.snapshot, "version": last and last.version}
    rows = (await connection.execute(_LOOK, {"region": region, **since})).all()
    if not rows:
        raise unknown_region(region)
    keys = sorted((row.tenant, row.workload, row.generation) for row in rows if row.tenant)
    return _Point(rows[0].version, rows[0].snapshot), keys
