"""A server that hangs is given up within seconds, refused at once from then on, and found again."""

import asyncio
import errno
import logging
import time
from collections.abc import AsyncIterator

import psycopg
import pytest
from sqlalchemy import URL, text

from durable.authority.db import breaker as breaker_module
from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import AuthorityUnreachableError, CircuitOpenError
from durable.authority.migrations import upgrade
from durable.stack.postgres.server import EmbeddedPostgres
from tests.authority.waiting import until_waiting
from tests.frozen import frozen

# Far below the twenty seconds after which a silent transaction was given up before.
SOON_SECONDS = 15.0


@pytest.fixture
async def databases(other_postgres: EmbeddedPostgres) -> AsyncIterator[Databases]:
    url = other_postgres.ensure_database("breaker")
    await asyncio.to_thread(upgrade, url)
    async with Databases(url) as databases:
        await _read(databases)  # a connection that will wait in the pool
        yield databases


async def _read(databases: Databases) -> int:
    async def body(connection: AsyncConnection) -> int:
        return (await connection.execute(text("SELECT 1"))).scalar_one()

    return await transact(databases.at_global("durable_reader"), body, doing="read")


async def test_a_server_that_hangs_is_given_up_and_found_again(
    databases: Databases, other_postgres: EmbeddedPostgres, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    with frozen(other_postgres):
        # One waits on a connection, the others for one: all are given up together.
        given_up = await asyncio.gather(
            *(_read(databases) for _ in range(20)), return_exceptions=True
        )
        assert all(isinstance(error, AuthorityUnreachableError) for error in given_up)
        assert time.monotonic() - began < SOON_SECONDS
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(CircuitOpenError, match="does not answer"):
                await _read(databases)
        assert time.monotonic() - began < 1, "nobody was asked"
    async with asyncio.timeout(SOON_SECONDS):
        while True:
            try:
                assert await _read(databases) == 1
                break
            except CircuitOpenError:
                await asyncio.sleep(0.05)
    breaker = databases.at_global("durable_reader").breaker
    outage = breaker.last_outage
    assert outage is not None
    assert outage.asked >= 1
    assert outage.refused >= 100
    told = [one.getMessage() for one in caplog.records if "PostgreSQL at" in one.getMessage()]
    assert len(told) == 2, "once when it falls silent, once when it answers"
    assert f"asked {outage.asked} times" in told[1]


async def test_what_opens_closes_by_itself_whatever_fails_meanwhile(
    databases: Databases, other_postgres: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full, so that no line can be logged, and to ask the server fails twice."""

    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    asked: list[None] = []
    is_answering = breaker_module.is_answering

    async def failing_at_first(url: URL) -> bool:
        asked.append(None)
        if len(asked) in (2, 3):
            raise RuntimeError("can't start new thread")
        return await is_answering(url)

    monkeypatch.setattr(breaker_module, "is_answering", failing_at_first)
    handler = Full()
    breaker_module.log.addHandler(handler)
    try:
        # The line that cannot be written may be its caller's error, and nobody else's.
        with frozen(other_postgres), pytest.raises((AuthorityUnreachableError, OSError)):
            await _read(databases)
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await _read(databases) == 1
                    break
                except AuthorityUnreachableError:
                    await asyncio.sleep(0.05)
    finally:
        breaker_module.log.removeHandler(handler)
    assert len(asked) > 3


async def test_a_server_that_is_only_slow_is_waited_for(
    databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breaker_module, "PATIENCE_SECONDS", 0.01)
    asked = asyncio.Event()
    is_answering = breaker_module.is_answering

    async def counted(*of: object) -> bool:
        answer = await is_answering(*of)  # pyright: ignore[reportArgumentType]
        asked.set()
        return answer

    monkeypatch.setattr(breaker_module, "is_answering", counted)
    async with await psycopg.AsyncConnection.connect(databases.urls[0]) as gate:
        await gate.execute("LOCK TABLE global.tenants")

        async def wait_for_lock(connection: AsyncConnection) -> int:
            return (
                await connection.execute(text("SELECT count(*) FROM global.tenants"))
            ).scalar_one()

        waits = asyncio.create_task(
            transact(databases.at_global("durable_reader"), wait_for_lock, doing="wait")
        )
        await until_waiting(gate)
        await asked.wait()
        await gate.commit()
    assert await waits == 0


async def test_who_gives_up_does_not_wait_for_a_server_that_hangs(
    databases: Databases, other_postgres: EmbeddedPostgres
) -> None:
    with frozen(other_postgres):
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await _read(databases)
        assert time.monotonic() - began < 4, "the driver alone waits ten seconds"
