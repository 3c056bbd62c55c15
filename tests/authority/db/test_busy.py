"""Busy is not down: a server that answers is told apart from one that does not."""

import asyncio

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.db import connection as connection_module
from durable.authority.db.breaker import Breaker
from durable.authority.db.connection import Databases, engine_for, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import AuthorityBusyError, AuthorityUnreachableError
from tests.authority.world import World

ROLE = "durable_operators"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "LOCK_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(connection_module, "POOL_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(connection_module, "ATTEMPTS", 2)


async def _lock(connection: AsyncConnection) -> None:
    await connection.execute(text("SELECT global.hold_lock('operators', false)"))


async def _do(databases: Databases) -> None:
    await transact(databases.at_global(ROLE), _lock, doing="add an operator")


def _breaker(databases: Databases) -> Breaker:
    return databases.at_global(ROLE).breaker


async def test_a_lock_that_is_held_is_named_with_its_holder(
    world: World, database_url: str
) -> None:
    with psycopg.connect(database_url, application_name="a person's psql") as holder:
        holder.execute("SELECT global.hold_lock('operators', false)")
        with pytest.raises(AuthorityBusyError) as refused:
            await _do(world.databases)
        sentence = str(refused.value)
        assert sentence.startswith("Could not add an operator: PostgreSQL at 127.0.0.1:")
        assert f"a person's psql (pid {holder.info.backend_pid}) held locks then" in sentence
        assert sentence.endswith("Nothing changed; send the same request again shortly.")
        assert "did not answer" not in sentence
    assert not _breaker(world.databases).is_open
    await _do(world.databases)


async def test_a_full_pool_is_busy_and_opens_no_breaker(database_url: str) -> None:
    engine = engine_for(database_url, ROLE, pool_size=1)
    try:
        async with engine.begin():
            with pytest.raises(AuthorityBusyError, match="connections for it are in use"):
                await transact(engine, _lock, doing="add an operator")
        assert not engine.breaker.is_open
        await transact(engine, _lock, doing="add an operator")
    finally:
        await engine.dispose()


@pytest.mark.parametrize(
    ("sqlstate", "why"),
    [
        ("53300", "no connection left"),
        ("53100", "disk is full"),
        ("25006", "is read-only"),
        ("40P01", "collided"),
        ("57014", "longer than its time limit"),
    ],
)
async def test_what_keeps_a_server_that_answers_is_said(
    world: World, sqlstate: str, why: str
) -> None:
    async def fails(connection: AsyncConnection) -> None:
        await connection.execute(
            text(f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{sqlstate}'; END $$")
        )

    with pytest.raises(AuthorityUnreachableError, match=why) as refused:
        await transact(world.databases.at_global(ROLE), fails, doing="try")
    assert isinstance(refused.value, AuthorityBusyError)
    assert not _breaker(world.databases).is_open


async def test_busy_after_a_lost_answer_promises_nothing(world: World) -> None:
    """The first try may have been committed; that the second was not says nothing of it."""
    tries = 0

    async def fails(connection: AsyncConnection) -> None:
        nonlocal tries
        tries += 1
        state = "08006" if tries == 1 else "57014"
        await connection.execute(
            text(f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{state}'; END $$")
        )

    with pytest.raises(AuthorityBusyError, match="An earlier try may have changed it"):
        await transact(world.databases.at_global(ROLE), fails, doing="try")
    assert tries == 2


async def test_many_at_once_share_a_small_pool(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a turn is no failure while turns come."""
    monkeypatch.setattr(connection_module, "LOCK_TIMEOUT_SECONDS", 5)
    monkeypatch.setattr(connection_module, "POOL_TIMEOUT_SECONDS", 10)
    async with asyncio.timeout(60):
        await asyncio.gather(*(_do(world.databases) for _ in range(40)))
