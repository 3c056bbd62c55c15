"""A region's cache: it watches the region, reads what changed, and knows how old it is."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Self

from durable.authority.cache.cached_region import CachedPolicies, CachedRegion
from durable.authority.cache.region_read import read_changes, read_in_chunks
from durable.authority.cache.watch import poll_leases, watch
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError, AuthorityUnreachableError
from durable.ending import end_all
from durable.model.ids import RegionId
from durable.model.policy.policy import Policy
from durable.model.refusal import RefusedError
from durable.scheduling.queue.relief import Relief
from durable.scheduling.snapshot.region import Snapshot

RESYNC_SECONDS = 60.0
LEASE_POLL_SECONDS = 3.0
SOON_SECONDS = 0.5
# A burst of commits is read once, this long after its first notification. A decision that this
# makes wrong is refused at commit, and made again on a cache that was read for it.
GATHER_SECONDS = 0.05
FIRST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 5.0

_log = logging.getLogger(__name__)


class RegionCache:
    """`async with` keeps it up to date; it answers from memory, and says how old that is."""

    def __init__(
        self,
        databases: Databases,
        region: RegionId,
        *,
        resync_seconds: float = RESYNC_SECONDS,
        lease_poll_seconds: float = LEASE_POLL_SECONDS,
    ) -> None:
        self._databases, self._region = databases, region
        self._resync_seconds, self._lease_poll_seconds = resync_seconds, lease_poll_seconds
        self._held = CachedRegion(region)
        self._policies = CachedPolicies(databases, region)
        self._reading = asyncio.Lock()
        self._next_read: asyncio.Task[None] | None = None
        self._reads: set[asyncio.Task[None]] = set()
        self._was_read = False
        self._ready = asyncio.Event()
        self._trouble = "nothing was read yet"
        # What got better, and when, for those who wait.
        self.relief = Relief()
        self._wakeups = 0
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for run, name in ((self._follow, "follow"), (self._keep_leases, "leases of")):
            self._tasks.append(asyncio.create_task(self._keep(run), name=f"{name} {self._region}"))
        return self

    async def __aexit__(self, *_: object) -> None:
        await end_all([*self._tasks, *self._reads])

    # ── what it knows ───────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int:
        return self._known().version

    @property
    def epoch(self) -> int:
        return self._known().epoch

    @property
    def wakeups(self) -> int:
        """How often something changed that a pending placement may have waited for."""
        return self._wakeups

    def snapshot(self) -> Snapshot:
        """The region as it is known now; it changes in place: not to be kept over an await."""
        return self._known().snapshot()

    def policy(self) -> tuple[int, Policy]:
        """The revision that is active in the region, with its content."""
        return self._policies.of(self._known().policy_revision)

    async def wait_ready(self, timeout_seconds: float) -> None:
        """Until the region was read for the first time."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._ready.wait()
        except TimeoutError:
            raise AuthorityUnreachableError(
                f"The cache of {self._region} was not read in {timeout_seconds} s: {self._trouble}"
            ) from None

    async def room_appeared(self, since: int | None = None) -> int:
        """Waits for more `wakeups` than `since`, or than now; answers how many there are.

        Free capacity, a new or uncordoned node, a node that is fresh again, more grant or room,
        another policy, or a region that was opened.
        """
        seen = self._wakeups if since is None else since
        while self._wakeups <= seen:
            await self._woken.wait()
        return self._wakeups

    async def refresh(self) -> None:
        """Reads what changed until now; callers that come before the read begins share it."""
        if self._next_read is None:
            self._next_read = asyncio.create_task(self._read_next(), name=f"read {self._region}")
            self._reads.add(self._next_read)
            self._next_read.add_done_callback(self._ended)
        await asyncio.shield(self._next_read)

    def _known(self) -> CachedRegion:
        if not self._ready.is_set():
            raise AuthorityUnreachableError(
                f"The cache of {self._region} is not ready: {self._trouble}"
            )
        return self._held

    # ── how it stays up to date ─────────────────────────────────────────────────────────────────

    async def _read_next(self) -> None:
        async with self._reading:
            self._next_read = None  # from here on another caller needs another read
            await self._read_changes()
        await self._learn_policy()

    async def _read_changes(self) -> None:
        if not self._was_read:
            return await self._read_whole()
        sent_at = time.monotonic()
        read = await read_changes(self._databases, self._region, self._held.version)
        if read.version < self._held.version:
            # The database was restored to an earlier time: nothing that is cached holds.
            return await self._read_whole()
        self._merged(self._held.merge(read, sent_at=sent_at, is_whole=False))
        return None

    async def _read_whole(self) -> None:
        sent_at = time.monotonic()
        read = await read_in_chunks(self._databases, self._region)
        self._was_read = True
        self._merged(self._held.merge(read, sent_at=sent_at, is_whole=True))

    async def _learn_policy(self) -> None:
        """Apart from reading the region, because the global side alone may be unreachable."""
        try:
            if await self._policies.learn(self._held.policy_revision):
                self._wake()
        except (AuthorityError, RefusedError) as error:
            self._note(error)
        self._ready.set()

    def _ended(self, read: asyncio.Task[None]) -> None:
        self._reads.discard(read)
        if not read.cancelled():
            read.exception()  # retrieved, because the caller may be gone and nothing else would

    async def _keep(self, run: Callable[[], Awaitable[None]]) -> None:
        """Restarts a watcher that ended unexpectedly: a cache must never go deaf."""
        while True:
            try:
                await run()
            except Exception as error:
                self._trouble = f"{type(error).__name__}: {error}"
                _log.exception("A watcher of %s ended and is restarted", self._region)
            await asyncio.sleep(LONGEST_BACKOFF_SECONDS)

    async def _follow(self) -> None:
        url = self._databases.url_of(self._region)
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            try:
                notifications = watch(
                    url, frozenset({self._region}), resync_seconds=self._resync_seconds
                )
                async with aclosing(notifications) as changes:
                    async for change in changes:
                        if change.is_resync:
                            async with self._reading:
                                await self._read_whole()
                            await self._learn_policy()
                        elif change.version > self._held.version:
                            await asyncio.sleep(GATHER_SECONDS)
                            await self.refresh()
                        backoff = FIRST_BACKOFF_SECONDS
            except (AuthorityError, RefusedError) as error:
                self._note(error)
            await asyncio.sleep(backoff)
            backoff = min(LONGEST_BACKOFF_SECONDS, 2 * backoff)

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._until_next_poll())
            try:
                await self._poll_leases()
            except (AuthorityError, RefusedError) as error:
                self._note(error)

    def _until_next_poll(self) -> float:
        """Sooner while no node is fresh: every pending placement waits for the first of them."""
        any_fresh = self._was_read and bool(self._held.snapshot().fresh().any())
        return (
            self._lease_poll_seconds if any_fresh else min(SOON_SECONDS, self._lease_poll_seconds)
        )

    async def _poll_leases(self) -> None:
        async with self._reading:
            sent_at = time.monotonic()
            poll = await poll_leases(self._databases, self._region)
            if self._was_read:
                self._merged(self._held.renew(poll, sent_at=sent_at))
        # A lost notification, or a policy that could not be read: the next poll makes up for it.
        if not self._was_read or poll.version != self._held.version:
            await self.refresh()
        else:
            await self._learn_policy()

    def _merged(self, is_better: bool) -> None:
        """Every state that decisions may have seen is observed, also one that got worse."""
        self.relief.observe(self._held.snapshot(), self._held.policy_revision or 0)
        if is_better:
            self._wake()

    def _wake(self) -> None:
        self._wakeups += 1
        self._woken.set()
        self._woken = asyncio.Event()

    def _note(self, error: Exception) -> None:
        self._trouble = str(error)
        _log.warning("The cache of %s goes on with what it knows: %s", self._region, error)
