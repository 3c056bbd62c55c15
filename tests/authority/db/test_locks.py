"""Who may only read keeps nobody waiting: locks are rows, and no reader may hold one."""

import asyncio
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

import durable.authority
from durable.authority.db.locks import OPERATORS, POLICIES, fence_of
from durable.authority.operators.changes import add_operator, read_operator
from durable.authority.recovery.fence import fence, reopen
from durable.model.ids import ActorId
from durable.model.operators.rights import OperatorKind
from tests.authority.world import EAST, TEST, World

SOURCE = Path(durable.authority.__file__).parent
# The life sign of an agent is a number drawn by lot, which counts on its connection alone.
BY_LOT = {"agent_lock.py"}


def test_no_advisory_lock_guards_anything() -> None:
    """Any login can take one whose number it can compute."""
    users = {
        path.name
        for pattern in ("*.py", "*.sql")
        for path in SOURCE.rglob(pattern)
        if "pg_advisory" in path.read_text() or "pg_try_advisory" in path.read_text()
    }
    assert users == BY_LOT


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT global.hold_lock('operators', false)",
        "SELECT global.hold_lock('operators', true)",
        "SELECT FROM global.locks FOR UPDATE",
        "SELECT FROM global.locks FOR KEY SHARE",
        "SELECT FROM regional.regions FOR KEY SHARE",
        "SELECT global.forget_requests(1)",
        "LOCK TABLE global.locks IN ROW SHARE MODE",
    ],
)
def test_a_reader_can_hold_no_lock(database_url: str, statement: LiteralString) -> None:
    with psycopg.connect(database_url) as reader:
        reader.execute("SET ROLE durable_reader")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(statement)


async def test_a_reader_that_stays_in_a_transaction_holds_up_nobody(
    ready_world: World, database_url: str
) -> None:
    """It has read all there is and holds every lock that it can name."""
    with psycopg.connect(database_url) as reader:
        reader.execute("SET ROLE durable_reader")
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for name in (OPERATORS, POLICIES, fence_of(EAST), "global.operators", "durable policies"):
            reader.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [name])
            reader.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [name])
        reader.execute("SELECT count(*) FROM global.locks, regional.regions, global.regions")
        async with asyncio.timeout(60):
            await add_operator(
                ready_world.databases,
                ActorId("bob"),
                kind=OperatorKind.SERVICE,
                rights=[],
                actor=TEST,
                reason="new here",
            )
            await fence(ready_world.databases, EAST, expected_epoch=1, actor=TEST, reason="try")
            await reopen(ready_world.databases, EAST, expected_epoch=2, actor=TEST, reason="try")
        assert (await read_operator(ready_world.databases, ActorId("bob"))).id == "bob"
