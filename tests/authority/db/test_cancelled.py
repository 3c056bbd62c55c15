"""Whoever is asked to end does, in the middle of a transaction too."""

import asyncio
from contextlib import suppress

import psycopg
import pytest
from psycopg import waiting
from sqlalchemy import text

from durable.authority.db.connection import Databases, open_session, transact
from durable.authority.db.engine import AsyncConnection
from tests.authority.waiting import until_waiting
from tests.authority.world import World


async def test_a_cancelled_transaction_is_not_run_again(world: World) -> None:
    runs: list[int] = []
    began = asyncio.Event()

    async def wait(connection: AsyncConnection) -> None:
        runs.append(len(runs))
        await connection.execute(text("SELECT 1"))
        began.set()
        await connection.execute(text("SELECT pg_sleep(60)"))

    engine = world.databases.at_global("durable_reader")
    running = asyncio.create_task(transact(engine, wait, doing="wait"))
    await began.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await running
    assert runs == [0]


async def test_a_cancellation_while_the_schema_is_compared_is_not_taken_for_a_fault(
    world: World,
) -> None:
    """The first use of a connection: whoever stopped there was connected again, and never ended."""

    async def nothing(_: AsyncConnection) -> None: ...

    async with await psycopg.AsyncConnection.connect(world.databases.urls[0]) as owner:
        await owner.execute("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")
        engine = world.databases.at_global("durable_reader")
        running = asyncio.create_task(transact(engine, nothing, doing="connect"))
        await until_waiting(owner)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(running), 10)
        assert running.cancelled()


async def test_a_cancellation_that_comes_with_the_answer_is_not_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.wait_for` of Python 3.11 forgets it, and a listener would then listen for ever."""
    entered = asyncio.Event()

    async def forgetful(*_: object, **__: object) -> list[object]:
        entered.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return []

    async with await open_session(world.databases.urls[0], "listener") as listener:
        monkeypatch.setattr(waiting, "wait_async", forgetful)
        listening = asyncio.ensure_future(anext(listener.notifies()))
        await entered.wait()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(10):
                await listening
        monkeypatch.undo()


@pytest.mark.parametrize("through", ["a pool", "a session"])
async def test_a_cancelled_login_leaves_no_server_waiting_for_its_password(through: str) -> None:
    """Such a server lets no database be dropped until it gives up, a minute later."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def ask_for_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        began.set()
        while await reader.read(1000):
            pass
        ended.set()
        writer.close()

    async def nothing(_: AsyncConnection) -> None: ...

    async with await asyncio.start_server(ask_for_nothing, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        url = f"postgresql://durable:secret@127.0.0.1:{port}/durable?sslmode=disable"
        async with Databases(url) as databases:
            engine = databases.at_global("durable_reader")
            logging_in = asyncio.create_task(
                transact(engine, nothing, doing="log in")
                if through == "a pool"
                else open_session(url, "listener")
            )
            await began.wait()
            logging_in.cancel()
            # The task, and with it the error, is kept until then.
            await asyncio.wait([logging_in])
            async with asyncio.timeout(60):
                await ended.wait()
            assert logging_in.cancelled()
