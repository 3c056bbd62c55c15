"""Connections that break, commits that nobody hears of, servers that die: once is once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.db import connection as connection_module
from durable.authority.db.connection import Databases, engine_for, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.fleet.regions import add_region, read_region
from durable.authority.reads.invariants import violations
from durable.model.placement.intents import AnyIntent, Granted
from tests.authority.lossy_proxy import Loses, LossyProxy
from tests.authority.waiting import until_waiting
from tests.authority.world import EAST, TEST, World, seconds


async def _to_reserve(world: World) -> AnyIntent:
    return world.reserve()


async def _to_bind(world: World) -> AnyIntent:
    return world.bind((await world.granted(world.reserve())).token)


async def _to_start(world: World) -> AnyIntent:
    token = (await world.granted(world.reserve())).token
    await world.granted(world.bind(token))
    return world.start(token)


async def _to_evict(world: World) -> AnyIntent:
    return world.evict(await world.running())


async def _to_release(world: World) -> AnyIntent:
    token = (await world.granted(world.reserve())).token
    await world.granted(world.bind(token))
    return world.release(token)


async def _to_expire(world: World) -> AnyIntent:
    token = (await world.granted(world.reserve())).token
    world.now = seconds(31)
    return world.expire(token)


STEPS = [_to_reserve, _to_bind, _to_start, _to_evict, _to_release, _to_expire]


@pytest.fixture
def world(ready_world: World) -> World:
    return ready_world


@pytest.fixture
async def proxy(world: World) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(world.databases.urls[0]) as proxy:
        yield proxy


@pytest.mark.parametrize("loses", [Loses.THE_COMMIT, Loses.THE_ANSWER])
@pytest.mark.parametrize("prepare", STEPS)
async def test_a_commit_that_nobody_hears_of_happens_once(
    world: World,
    proxy: LossyProxy,
    prepare: Callable[[World], Awaitable[AnyIntent]],
    loses: Loses,
) -> None:
    intent = await prepare(world)
    before = await read_region(world.databases, EAST)
    async with Databases(proxy.url) as databases:
        lossy = replace(world, databases=databases)
        proxy.loses = loses
        outcome = await lossy.granted(intent)
    assert proxy.lost == 1, "the connection was cut"
    assert (await read_region(world.databases, EAST)).version == before.version + 1
    assert await world.granted(intent) == outcome
    await assert_clean(world)


async def test_a_batch_whose_answer_is_lost_happens_once(world: World, proxy: LossyProxy) -> None:
    async with Databases(proxy.url) as databases:
        lossy = replace(world, databases=databases)
        proxy.loses = Loses.THE_ANSWER
        outcomes = await lossy.send(*(world.reserve(slot) for slot in range(4)))
    assert [o.token for o in outcomes if isinstance(o, Granted)] == [1, 2, 3, 4]
    await assert_clean(world)


async def test_a_partition_that_swallows_everything_is_given_up_in_time(
    world: World, proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither side hears of it: only a limit of one's own ends the wait."""
    async with Databases(proxy.url) as databases:
        lossy = replace(world, databases=databases)
        await lossy.granted(lossy.reserve(0))
        monkeypatch.setattr(connection_module, "TRANSACTION_TIMEOUT_SECONDS", 1.0)
        proxy.loses = Loses.THE_WAY
        assert (await lossy.granted(lossy.reserve(1))).token == 2
    assert proxy.lost == 1
    await assert_clean(world)


async def test_a_backend_that_is_terminated_in_the_middle_is_tried_again(
    world: World,
) -> None:
    async with await psycopg.AsyncConnection.connect(world.databases.urls[0]) as gate:
        await gate.execute("SELECT FROM regional.regions FOR UPDATE")
        writer = asyncio.create_task(world.granted(world.reserve()))
        (waiting,) = await until_waiting(gate)
        await gate.execute("SELECT pg_terminate_backend(%s)", [waiting])
        await gate.commit()
    assert (await writer).token == 1
    await assert_clean(world)


async def test_a_wait_for_the_lock_that_times_out_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "LOCK_TIMEOUT_SECONDS", 1)
    async with Databases(world.databases.urls[0]) as databases:
        hasty = replace(world, databases=databases)
        async with await psycopg.AsyncConnection.connect(world.databases.urls[0]) as gate:
            await gate.execute("SELECT FROM regional.regions FOR UPDATE")
            writer = asyncio.create_task(hasty.granted(hasty.reserve()))
            (first,) = await until_waiting(gate)
            await _until_gone(gate, first)
            await gate.commit()
        assert (await writer).token == 1


async def test_a_deadlock_ends_with_both_done(database_url: str) -> None:
    engine = engine_for(database_url, "durable_quota")
    await _run(
        engine_url=database_url,
        statement="INSERT INTO global.tenants VALUES ('a', now()), ('b', now());"
        "INSERT INTO global.quotas (tenant, hard_gpus) VALUES ('a', 0), ('b', 0)",
    )
    bump = text("UPDATE global.quotas SET hard_gpus = hard_gpus + 1 WHERE tenant = :tenant")
    met = asyncio.Barrier(2)
    tries = 0

    def crossing(first: str, second: str) -> Callable[[AsyncConnection], Awaitable[None]]:
        waits = True

        async def body(connection: AsyncConnection) -> None:
            nonlocal waits, tries
            tries += 1
            await connection.execute(bump, {"tenant": first})
            if waits:
                waits = False
                await met.wait()
            await connection.execute(bump, {"tenant": second})

        return body

    await asyncio.gather(
        transact(engine, crossing("a", "b"), doing="cross"),
        transact(engine, crossing("b", "a"), doing="cross"),
    )
    await engine.dispose()
    assert tries == 3, "one of the two was the deadlock's victim, once"
    assert await _value(database_url, "SELECT sum(hard_gpus) FROM global.quotas") == 4


async def test_a_serialization_failure_is_tried_again(database_url: str) -> None:
    engine = engine_for(database_url, "durable_quota")
    await _run(
        engine_url=database_url,
        statement="INSERT INTO global.tenants VALUES ('a', now());"
        "INSERT INTO global.quotas (tenant) VALUES ('a')",
    )
    met = asyncio.Barrier(2)
    tries = 0

    def increment() -> Callable[[AsyncConnection], Awaitable[None]]:
        waits = True

        async def body(connection: AsyncConnection) -> None:
            nonlocal waits, tries
            tries += 1
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
            read = text("SELECT hard_gpus FROM global.quotas WHERE tenant = 'a'")
            seen: int = (await connection.execute(read)).scalar_one()
            if waits:
                waits = False
                await met.wait()
            write = text("UPDATE global.quotas SET hard_gpus = :next WHERE tenant = 'a'")
            await connection.execute(write, {"next": seen + 1})

        return body

    await asyncio.gather(
        transact(engine, increment(), doing="count"), transact(engine, increment(), doing="count")
    )
    await engine.dispose()
    assert tries == 3
    assert await _value(database_url, "SELECT hard_gpus FROM global.quotas") == 2


async def test_a_server_that_never_answers_ends_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "FIRST_BACKOFF_SECONDS", 0.0001)
    nobody = "postgresql://durable:secret@127.0.0.1:1/durable"
    async with Databases(nobody) as databases:
        with pytest.raises(AuthorityUnreachableError) as caught:
            await read_region(databases, EAST)
        assert "127.0.0.1:1" in str(caught.value)
        assert "may have been made" not in str(caught.value), "it was only read"
        with pytest.raises(AuthorityUnreachableError, match="send the same request again"):
            await add_region(databases, EAST, TEST)
    assert "secret" not in str(caught.value)


async def assert_clean(world: World) -> None:
    async with world.databases.at_global("durable_reader").begin() as connection:
        assert await violations(connection) == []


async def _until_gone(gate: psycopg.AsyncConnection, pid: int) -> None:
    """Until that backend no longer waits: its lock timeout has struck."""
    for _ in range(4_000):
        await gate.execute("SELECT pg_stat_clear_snapshot()")
        row = await gate.execute(
            "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", [pid]
        )
        if await row.fetchone() is None:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it waits for ever")


async def _run(engine_url: str, statement: str) -> None:
    async with await psycopg.AsyncConnection.connect(engine_url) as connection:
        await connection.execute(statement.encode())


async def _value(url: str, query: str) -> int:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(query.encode())).fetchone()
        assert row is not None
        return int(row[0])
