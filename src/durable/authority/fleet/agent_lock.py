"""The lock of the one agent that hosts a region's declared nodes: a row, and a sign of life.

Two such agents would take each other's sessions for ever. The row names the holder, and only the
agents' role may write it. It counts for as long as the holder's connection lives, which the holder
shows by an advisory lock under a number that it drew by lot. The database releases that number when
the connection ends, so an agent that was killed gives up at once and its successor need not wait.
Any login may take an advisory lock, but no other can hold that number on that connection. (The row
itself is not kept locked: a transaction that is open for days would keep the database from cleaning
up.)
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import psycopg
from sqlalchemy import text

from durable.authority.db.connection import (
    KEEPALIVE,
    STATEMENT_TIMEOUT_SECONDS,
    Databases,
    open_session,
)
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import explained
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.validation.text import show_moment

ROLE = "durable_agent"

# A server needs a moment to notice that the holder was killed.
PATIENCE_SECONDS = 1.0
POLL_SECONDS = 0.05
# What the server keeps of a name.
NAME_CHARACTERS = 63

_ADD = """
    INSERT INTO regional.agent_locks (region, pid, life_sign, holder, held_since)
    SELECT region, 0, 0, 'nobody', clock_timestamp() FROM regional.regions WHERE region = %s
        ON CONFLICT DO NOTHING
"""

_LOCK_ROW = "SELECT FROM regional.agent_locks WHERE region = %s FOR UPDATE"

# A statement of its own, so that it looks only after the wait for the row.
_IS_HELD = """
    SELECT EXISTS (
           SELECT FROM pg_locks AS l
            WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid = a.pid
              AND (CAST(l.classid AS bigint) << 32 | CAST(l.objid AS bigint)) = a.life_sign
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           ) AS is_held, a.life_sign, a.holder, a.held_since
      FROM regional.agent_locks AS a WHERE a.region = {}
"""
_READ = _IS_HELD.format("%s")
_LOOK = text(_IS_HELD.format(":region"))

_SHOW_LIFE = "SELECT pg_try_advisory_lock(%s)"

_TAKE = """
    UPDATE regional.agent_locks
       SET pid = pg_backend_pid(), life_sign = %s, holder = %s, held_since = clock_timestamp()
     WHERE region = %s
"""

# The server, too, must notice that a machine is gone; otherwise the lock would stay held for hours.
_SET_KEEPALIVE = "SELECT set_config(%s, %s, false)"
_KEEPALIVES = ("keepalives_idle", "keepalives_interval", "keepalives_count")


class AgentLock:
    """A lock that is held."""

    def __init__(self, connection: psycopg.AsyncConnection, life_sign: int) -> None:
        self._connection = connection
        self.life_sign = life_sign

    async def until_lost(self) -> None:
        """Ends with an error when the connection does, and never otherwise."""
        with explained("hold the agent lock"):
            async with aclosing(self._connection.notifies()) as notifications:
                async for _ in notifications:
                    pass


@asynccontextmanager
async def hold_agent_lock(
    databases: Databases, region: RegionId, *, lost: AgentLock | None = None
) -> AsyncGenerator[AgentLock]:
    """Holds the region's agent lock, or refuses with who holds it.

    `lost` is the lock that this agent held until its connection ended: it takes that one again even
    while the server still counts the connection that was lost.
    """
    me = f"durable agent, pid {os.getpid()} on {socket.gethostname()}"[:NAME_CHARACTERS]
    doing = f"take the agent lock of {region}"
    with explained(doing):
        session = await open_session(databases.url_of(region), me)
    async with session as connection:
        with explained(doing):
            async with asyncio.timeout(STATEMENT_TIMEOUT_SECONDS):
                await connection.execute("SET ROLE durable_agent")
                for name in _KEEPALIVES:
                    await connection.execute(_SET_KEEPALIVE, [f"tcp_{name}", str(KEEPALIVE[name])])
                lock = await _take(connection, region, me, lost)
        yield lock


@regional_transaction(ROLE, "look at the agent lock of {region}")
async def is_agent_lock_free(connection: AsyncConnection, region: RegionId) -> bool:
    """Whether the region's agent lock is free at this moment."""
    row = (await connection.execute(_LOOK, {"region": region})).one_or_none()
    return row is None or not row.is_held


async def _take(
    connection: psycopg.AsyncConnection, region: RegionId, me: str, lost: AgentLock | None
) -> AgentLock:
    life_sign = secrets.randbits(63)
    await connection.execute(_SHOW_LIFE, [life_sign])
    await connection.execute(_ADD, [region])
    give_up = time.monotonic() + PATIENCE_SECONDS
    while True:
        async with connection.transaction():
            await connection.execute(_LOCK_ROW, [region])
            row = await (await connection.execute(_READ, [region])).fetchone()
            if row is None:
                raise unknown_region(region)
            is_held, known_sign, holder, since = row
            if not is_held or (lost is not None and known_sign == lost.life_sign):
                await connection.execute(_TAKE, [life_sign, me, region])
                return AgentLock(connection, life_sign)
        if time.monotonic() > give_up:
            break
        await asyncio.sleep(POLL_SECONDS)
    raise RefusedError(
        RefusalCode.NODES_HOSTED,
        f"The declared nodes of {region} are hosted by {holder}, since "
        f"{show_moment(since)}, and a second agent would fight it over them. "
        "Use that agent (`durable up` runs one for all regions), or stop it first.",
    )
