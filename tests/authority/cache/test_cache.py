"""A cache knows what its region knows, how old that is, and when something appeared in it."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from durable.authority.cache import cached_region, region_read
from durable.authority.cache import region_cache as cache_module
from durable.authority.cache.region_cache import RegionCache
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError, AuthorityUnreachableError
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.fleet.policies import publish_policy, set_policy_state
from durable.authority.fleet.regions import read_region
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.recovery.fence import fence, reopen
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import NodeId, RegionId
from durable.model.resources import Capacity, Resources
from durable.model.states import PolicyState
from durable.scheduling.policies import first_policy
from durable.scheduling.snapshot.region import Snapshot
from tests.authority.cache.test_watch import notify
from tests.authority.lossy_proxy import LossyProxy
from tests.authority.world import BILLING, EAST, RISK, TEST, World, node

NEVER = 3600.0
PATIENCE = 20.0
WATCHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name = 'durable_watch' AND datname = current_database()"
)


@asynccontextmanager
async def caching(
    world: World, *, resync_seconds: float = NEVER, lease_poll_seconds: float = NEVER
) -> AsyncGenerator[RegionCache]:
    async with RegionCache(
        world.databases, EAST, resync_seconds=resync_seconds, lease_poll_seconds=lease_poll_seconds
    ) as cache:
        await cache.wait_ready(PATIENCE)
        yield cache


async def until(holds: Callable[[], bool]) -> None:
    """The cache wakes for improvements alone, so a test that took something away refreshes it."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is awaited has no event
            await asyncio.sleep(0.005)


async def caught_up(world: World, cache: RegionCache) -> Snapshot:
    newest = (await read_region(world.databases, EAST)).version
    await until(lambda: cache.version >= newest)
    return cache.snapshot()


def free(snapshot: Snapshot, name: str = "n1") -> list[int]:
    row = snapshot.row(name)
    assert row is not None
    columns = snapshot.columns
    return [int(amount) for amount in columns.capacity[row] - columns.used[row]]


async def test_the_whole_region_is_there_from_the_start(ready_world: World) -> None:
    async with caching(ready_world) as cache:
        held = cache.snapshot()
        status = await read_region(ready_world.databases, EAST)
        assert (held.region, held.epoch, held.version) == (EAST, status.epoch, status.version)
        assert (len(held), free(held), held.is_open) == (1, [8000, 32_768, 0], True)
        assert held.grants == {"risk": ((100_000, 1_000_000, 100), (0, 0, 0))}
        assert held.room == (8000, 32_768, 0)
        assert abs(held.now - datetime.now(UTC).timestamp()) < 60
        assert cache.policy() == (1, first_policy())


async def test_a_commit_reaches_the_cache(ready_world: World) -> None:
    async with caching(ready_world) as cache:
        token = (await ready_world.granted(ready_world.reserve(0))).token
        held = await caught_up(ready_world, cache)
        assert free(held) == [7000, 31_744, 0]
        assert held.grants["risk"][1] == (1000, 1024, 0)
        assert held.room == (7000, 31_744, 0)
        await ready_world.granted(ready_world.release(token))
        assert free(await caught_up(ready_world, cache)) == [8000, 32_768, 0]


async def test_a_removed_node_leaves_the_cache(ready_world: World) -> None:
    await ready_world.with_nodes(node("n2"))
    async with caching(ready_world) as cache:
        assert len(cache.snapshot()) == 2
        remove(ready_world, "n2")
        held = await caught_up(ready_world, cache)
        assert (len(held), held.row("n2")) == (1, None)
        await ready_world.with_nodes(node("n3"))
        assert (await caught_up(ready_world, cache)).row("n3") is not None


def remove(world: World, name: str) -> None:
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("UPDATE regional.regions SET version = version + 1")
        owner.execute(
            "UPDATE regional.nodes SET state = 'removed', changed_version ="
            " (SELECT version FROM regional.regions) WHERE node = %s",
            [name],
        )


# ── wakeups ─────────────────────────────────────────────────────────────────────────────────────


async def claim(world: World) -> None:
    await world.granted(world.reserve(0))


async def free_it(world: World) -> None:
    await world.granted(world.release(1))


async def cordon(world: World) -> None:
    await cordon_nodes(
        world.databases, NodesTarget.of_node(EAST, NodeId("n1")), actor=TEST, reason="a fan"
    )


async def uncordon(world: World) -> None:
    await uncordon_nodes(
        world.databases, NodesTarget.of_node(EAST, NodeId("n1")), actor=TEST, reason="mended"
    )


async def add_node(world: World) -> None:
    await world.with_nodes(node("n2"))


async def raise_grant(world: World) -> None:
    more = GrantTransfer(id="more", tenant=RISK, amount=Resources.of(5), to_region=EAST, actor=TEST)
    await transfer_grant(world.databases, more)


async def new_tenant(world: World) -> None:
    await world.with_tenant(BILLING)


async def fence_east(world: World) -> None:
    await fence(world.databases, EAST, expected_epoch=1, actor=TEST, reason="a drill")


async def reopen_east(world: World) -> None:
    await reopen(world.databases, EAST, expected_epoch=2, actor=TEST, reason="over")


async def activate(world: World) -> None:
    spec = first_policy().model_dump(mode="json")
    await publish_policy(world.databases, 2, {**spec, "rounds_per_attempt": 2}, TEST)
    await set_policy_state(world.databases, EAST, 2, PolicyState.ACTIVE, TEST)


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (claim, free_it), (cordon, uncordon), (None, add_node), (None, raise_grant),
        (None, new_tenant), (fence_east, reopen_east), (None, activate),
    ],
)  # fmt: skip
async def test_a_waiting_placement_is_woken_by_what_may_help(
    ready_world: World, before: Any, then: Any
) -> None:
    ready_world.now = datetime.now(UTC)
    await ready_world.with_nodes()
    if before is not None:
        await before(ready_world)
    async with caching(ready_world) as cache:
        waiter = asyncio.create_task(cache.room_appeared())
        await asyncio.sleep(0)
        await then(ready_world)
        async with asyncio.timeout(PATIENCE):
            await waiter


@pytest.mark.parametrize("then", [claim, cordon])
async def test_what_takes_something_away_wakes_nobody(ready_world: World, then: Any) -> None:
    async with caching(ready_world) as cache:
        seen = cache.wakeups
        await then(ready_world)
        await caught_up(ready_world, cache)
        assert cache.wakeups == seen


async def test_a_wakeup_between_two_waits_is_not_lost(ready_world: World) -> None:
    async with caching(ready_world) as cache:
        seen = cache.wakeups
        await ready_world.with_nodes(node("n2"))
        await caught_up(ready_world, cache)
        async with asyncio.timeout(PATIENCE):
            assert await cache.room_appeared(seen) > seen


# ── leases, clock and age ───────────────────────────────────────────────────────────────────────


async def test_leases_are_followed_although_they_have_no_version(ready_world: World) -> None:
    ready_world.now = datetime.now(UTC)
    async with caching(ready_world, lease_poll_seconds=0.01) as cache:
        with psycopg.connect(ready_world.databases.urls[0], autocommit=True) as owner:
            owner.execute("UPDATE regional.node_leases SET expires_at = now() - interval '1 day'")
            await until(lambda: not cache.snapshot().fresh().any())
            woken = asyncio.create_task(cache.room_appeared())
            await asyncio.sleep(0)
            owner.execute("UPDATE regional.node_leases SET expires_at = now() + interval '1 day'")
            async with asyncio.timeout(PATIENCE):
                await woken
        held = cache.snapshot()
        assert held.fresh()[held.row("n1")]


async def test_a_budget_that_ends_by_the_clock_gives_its_room_back(ready_world: World) -> None:
    ready_world.now = datetime.now(UTC)
    await ready_world.with_headroom(Resources.of(3000, 1024))
    async with caching(ready_world, lease_poll_seconds=0.01) as cache:
        assert cache.snapshot().room == (5000, 31_744, 0)
        woken = asyncio.create_task(cache.room_appeared())
        await asyncio.sleep(0)
        with psycopg.connect(ready_world.databases.urls[0]) as owner:
            owner.execute("UPDATE regional.recovery_budgets SET expires_at = now()")
        async with asyncio.timeout(PATIENCE):
            await woken
        assert cache.snapshot().room == (8000, 32_768, 0)


async def test_age_counts_from_the_last_time_the_version_was_known_to_be_the_newest(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    # The cache's own view of time alone: the event loop's must go on.
    for module in (cache_module, cached_region):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    async with caching(ready_world) as cache:
        first = cache.snapshot()
        now, age = first.now, first.age_seconds
        clock[0] += 7
        held = cache.snapshot()
        assert (held.now - now, held.age_seconds - age) == (7, 7)
        await cache.refresh()
        assert cache.snapshot().age_seconds == 0
        clock[0] += 3
        await cache._poll_leases()  # pyright: ignore[reportPrivateUsage]
        assert cache.snapshot().age_seconds == 0


# ── refresh ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_refresh_shows_what_was_committed_before_it(ready_world: World) -> None:
    async with caching(ready_world) as cache:
        for slot in range(5):
            granted = await ready_world.granted(ready_world.reserve(slot))
            await cache.refresh()
            assert cache.version >= granted.version


async def test_callers_at_once_share_a_read(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    async def counted(databases: Databases, region: RegionId, since: int) -> Any:
        reads.append(since)
        return await region_read.read_changes(databases, region, since)

    async with caching(ready_world) as cache:
        monkeypatch.setattr(cache_module, "read_changes", counted)
        await asyncio.gather(*(cache.refresh() for _ in range(100)))
        assert len(reads) <= 2


async def test_a_caller_that_gives_up_takes_nobody_with_it(ready_world: World) -> None:
    async with caching(ready_world) as cache:
        callers = [asyncio.create_task(cache.refresh()) for _ in range(3)]
        await asyncio.sleep(0)
        callers[0].cancel()
        ended = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError)
        assert ended[1:] == [None, None]


# ── gaps ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_lost_watch_is_resumed_and_misses_nothing(ready_world: World) -> None:
    async with caching(ready_world) as cache:
        with psycopg.connect(ready_world.databases.urls[0], autocommit=True) as owner:
            assert owner.execute(WATCHERS).fetchall() == [(True,)]
        await ready_world.granted(ready_world.reserve(0))
        assert free(await caught_up(ready_world, cache)) == [7000, 31_744, 0]
        await ready_world.granted(ready_world.reserve(1))
        assert free(await caught_up(ready_world, cache)) == [6000, 30_720, 0]


async def test_a_lost_notification_is_made_up_for_by_the_lease_poll(ready_world: World) -> None:
    with psycopg.connect(ready_world.databases.urls[0]) as owner:
        owner.execute("ALTER TABLE regional.regions DISABLE TRIGGER announced")
    async with caching(ready_world, lease_poll_seconds=0.01) as cache:
        await ready_world.granted(ready_world.reserve(0))
        assert free(await caught_up(ready_world, cache)) == [7000, 31_744, 0]


async def test_a_full_read_repairs_what_no_version_reported(ready_world: World) -> None:
    await ready_world.with_nodes(node("n2"))
    async with caching(ready_world, resync_seconds=0.01) as cache:
        with psycopg.connect(ready_world.databases.urls[0]) as owner:
            owner.execute("SET session_replication_role = replica")
            owner.execute("DELETE FROM regional.node_leases WHERE node = 'n2'")
            owner.execute("DELETE FROM regional.nodes WHERE node = 'n2'")
            owner.execute("UPDATE regional.nodes SET cordon_reason = 'x', cordoned_by = 'x'")
        await until(
            lambda: len(cache.snapshot()) == 1 and bool(cache.snapshot().columns.cordoned.any())
        )


async def test_a_region_that_went_back_in_time_is_read_again(ready_world: World) -> None:
    async with caching(ready_world) as cache:
        before = cache.version
        await ready_world.granted(ready_world.reserve(0))
        await caught_up(ready_world, cache)
        with psycopg.connect(ready_world.databases.urls[0]) as owner:
            owner.execute("SET session_replication_role = replica")
            owner.execute("UPDATE regional.regions SET version = %s", [before])
            owner.execute("UPDATE regional.nodes SET used_cpu_millis = 0, used_memory_mib = 0")
        await cache.refresh()
        assert (cache.version, free(cache.snapshot())) == (before, [8000, 32_768, 0])


async def test_while_nobody_answers_the_cache_goes_on_with_what_it_knows(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable.authority.db.connection.ATTEMPTS", 1)
    monkeypatch.setattr(cache_module, "FIRST_BACKOFF_SECONDS", 0.01)
    async with (
        LossyProxy(ready_world.databases.urls[0]) as proxy,
        Databases(proxy.url) as databases,
        caching(World(databases), lease_poll_seconds=0.01) as cache,
    ):
        await proxy.refuse()
        with pytest.raises(AuthorityUnreachableError):
            await cache.refresh()
        version, age = cache.version, cache.snapshot().age_seconds
        granted = await ready_world.granted(ready_world.reserve(0))
        assert cache.version == version < granted.version
        assert cache.snapshot().age_seconds >= age
        await proxy.accept()
        await until(lambda: cache.version >= granted.version)


# ── before it is ready ──────────────────────────────────────────────────────────────────────────


async def test_a_cache_that_was_not_read_says_so(ready_world: World) -> None:
    nowhere = RegionId("nowhere")
    async with RegionCache(ready_world.databases, nowhere, lease_poll_seconds=0.01) as cache:
        with pytest.raises(AuthorityUnreachableError, match="cache of nowhere is not ready"):
            cache.snapshot()
        with pytest.raises(AuthorityUnreachableError, match="nowhere was not read in"):
            await cache.wait_ready(0.2)


async def test_a_region_that_is_added_later_is_found(world: World) -> None:
    async with RegionCache(world.databases, EAST, lease_poll_seconds=0.01) as cache:
        await world.with_region()
        await cache.wait_ready(PATIENCE)
        await cache.refresh()
        assert cache.policy() == (1, first_policy())


async def test_a_policy_that_cannot_be_used_says_what_is_wrong(ready_world: World) -> None:
    await publish_policy(ready_world.databases, 2, {"weights": {"magic": 1}}, TEST)
    await set_policy_state(ready_world.databases, EAST, 2, PolicyState.ACTIVE, TEST)
    async with caching(ready_world) as cache:
        with pytest.raises(AuthorityError, match="Policy revision 2, active in us-east, cannot"):
            cache.policy()


async def test_a_burst_of_commits_is_read_a_few_times(
    ready_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ready_world.with_nodes(node(capacity=Capacity(cpu_millis=64_000, memory_mib=64_000)))
    reads: list[int] = []

    async def counted(databases: Databases, region: RegionId, since: int) -> Any:
        reads.append(since)
        return await region_read.read_changes(databases, region, since)

    monkeypatch.setattr(cache_module, "read_changes", counted)
    async with caching(ready_world) as cache:
        with psycopg.connect(ready_world.databases.urls[0]) as owner:
            for _ in range(200):
                owner.execute("UPDATE regional.regions SET version = version + 1")
        await caught_up(ready_world, cache)
        assert len(reads) <= 3, "one commit or two hundred in one are the same news"


async def test_a_forged_notification_is_only_a_hint_to_read(ready_world: World) -> None:
    async with caching(ready_world) as cache:
        before = cache.version
        notify(ready_world, "nonsense", f"us-east 9 {2**62}")
        await ready_world.granted(ready_world.reserve())
        await caught_up(ready_world, cache)
        assert (cache.epoch, cache.version) == (1, before + 1)


async def test_a_watcher_that_ended_is_restarted_and_reported(
    ready_world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache_module, "LONGEST_BACKOFF_SECONDS", 0.01)
    async with caching(ready_world) as cache:

        async def broken(*_: object) -> Any:
            monkeypatch.setattr(cache_module, "read_changes", region_read.read_changes)
            raise ZeroDivisionError("nobody foresaw this")

        monkeypatch.setattr(cache_module, "read_changes", broken)
        await ready_world.granted(ready_world.reserve())
        await caught_up(ready_world, cache)
    assert "A watcher of us-east ended and is restarted" in caplog.text
    assert "nobody foresaw this" in caplog.text
