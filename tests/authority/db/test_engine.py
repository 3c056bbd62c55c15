"""Statements, rows and the connections of a pool, against a real server."""

import asyncio
from contextlib import suppress

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection, Engine
from tests.authority.world import World

_PID = text("SELECT pg_backend_pid()")
_TENANTS = text("SELECT count(*) FROM global.tenants WHERE tenant = 'new'")
_ADD = text("INSERT INTO global.tenants VALUES ('new', now())")
ROLE = "durable_quota"


async def _pid(connection: AsyncConnection) -> int:
    return (await connection.execute(_PID)).scalar_one()


@pytest.mark.parametrize(
    ("statement", "parameters", "value"),
    [
        ("SELECT :word || '!'", {"word": "so"}, "so!"),
        ("SELECT :number::text", {"number": 5}, "5"),
        ("SELECT CAST(:one AS integer) + CAST(:one AS integer)", {"one": 1}, 2),
        ("SELECT '50%' LIKE '%0\\%'", None, True),
        ("SELECT 'a\\:b'", None, "a:b"),
        ("SELECT (ARRAY[1, 2, 3])[2:3]", None, [2, 3]),
        ("SELECT CAST(:rows AS jsonb)", {"rows": '{"a": [1]}'}, {"a": [1]}),
    ],
)
async def test_a_statement_names_its_parameters(
    world: World, statement: str, parameters: dict[str, object] | None, value: object
) -> None:
    async with world.databases.at_global("durable_reader").begin() as connection:
        answer = await connection.execute(text(statement), parameters)
        assert answer.scalar_one() == value


async def test_rows_are_read_by_field_by_place_and_as_mappings(world: World) -> None:
    """Also by a name that a tuple has something else under, and more than once."""
    two = text("SELECT n AS count, n * 2 FROM generate_series(1, 2) AS n")
    async with world.databases.at_global("durable_reader").begin() as connection:
        answer = await connection.execute(two)
        none = await connection.execute(text("SELECT 1 AS one WHERE false"))
    assert [row.count for row in answer] == [1, 2]
    assert [number + double for number, double in answer.all()] == [3, 6]
    assert answer.first() == (1, 2)
    assert [row["count"] for row in answer.mappings()] == [1, 2]
    assert list(answer.scalars()) == [1, 2]
    with pytest.raises(LookupError, match="there are 2"):
        answer.one()
    assert (none.one_or_none(), none.scalar_one_or_none(), none.first()) == (None, None, None)
    assert none.mappings().one_or_none() is None
    with pytest.raises(LookupError, match="there are 0"):
        none.one()


async def test_a_row_without_columns_is_a_row(world: World) -> None:
    """What only asks whether something exists selects nothing of it."""
    async with world.databases.at_global("durable_reader").begin() as connection:
        rows = await connection.execute(text("SELECT FROM generate_series(1, 2)"))
        none = await connection.execute(text("SELECT WHERE false"))
    assert rows.all() == [(), ()]
    assert rows.first() == ()
    assert (none.all(), none.first()) == ([], None)


async def _add(engine: Engine) -> int:
    """Adds a tenant, counts it and fails; answers by which connection."""
    pid = 0
    with suppress(LookupError):
        async with engine.begin() as connection:
            assert (await connection.execute(_ADD)).rowcount == 1
            pid = await _pid(connection)
            raise LookupError
    return pid


async def test_what_an_exception_ends_is_rolled_back_and_the_connection_used_again(
    world: World,
) -> None:
    engine = world.databases.at_global(ROLE)
    pid = await _add(engine)
    async with engine.begin() as connection:
        assert (await connection.execute(_TENANTS)).scalar_one() == 0
        assert await _pid(connection) == pid


async def test_a_connection_is_used_with_and_without_transactions(world: World) -> None:
    engine = world.databases.at_global(ROLE)
    pid = await _add(engine.committing_each())
    async with engine.begin() as connection:
        assert (await connection.execute(_TENANTS)).scalar_one() == 1, "it had committed by itself"
        assert await _pid(connection) == pid


async def test_a_cancelled_statement_takes_its_connection_with_it_and_no_other(
    world: World,
) -> None:
    engine = world.databases.at_global("durable_reader")
    async with engine.begin() as one, engine.begin() as other:
        kept, given_up = await _pid(one), await _pid(other)

    async def sleep() -> None:
        async with engine.begin() as connection:
            assert await _pid(connection) == kept
            began.set()
            await connection.execute(text("SELECT pg_sleep(60)"))

    began = asyncio.Event()
    sleeping = asyncio.create_task(sleep())
    await began.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping
    async with engine.begin() as one, engine.begin() as other:
        pids = {await _pid(one), await _pid(other)}
    assert kept not in pids
    assert given_up in pids


async def test_connections_to_a_server_that_has_gone_are_forgotten_together(world: World) -> None:
    engine = world.databases.at_global("durable_reader")
    async with engine.begin() as one, engine.begin() as other:
        before = {await _pid(one), await _pid(other)}
    with psycopg.connect(world.databases.urls[0]) as owner:
        for pid in before:
            owner.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    with pytest.raises(psycopg.OperationalError):
        async with engine.begin() as connection:
            await _pid(connection)
    async with engine.begin() as one, engine.begin() as other:
        assert before.isdisjoint({await _pid(one), await _pid(other)})
