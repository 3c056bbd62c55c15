"""The lock of the one agent that hosts a region's declared nodes: a lock of its connection.

Two such agents would take each other's sessions for ever. The database releases the lock when the
connection ends, so an agent that was killed gives it up at once and its successor need not wait.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import (
    KEEPALIVE,
    STATEMENT_TIMEOUT_SECONDS,
    Databases,
    open_session,
)
from durable.authority.db.errors import AuthorityUnreachableError, explained
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError

ROLE = "durable_agent"

# A server needs a moment to notice that the holder was killed.
PATIENCE_SECONDS = 1.0
POLL_SECONDS = 0.05
# What the server keeps of a name.
NAME_CHARACTERS = 63

_TAKE = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"

# Nobody holds what a transaction can take for its own duration.
_IS_FREE = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 0))")

_HOLDER = """
    SELECT a.pid, a.application_name, a.backend_start
      FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
       AND a.datname = current_database()
       AND (CAST(l.classid AS bigint) << 32 | CAST(l.objid AS bigint)) = hashtextextended(%s, 0)
"""

# The server, too, must notice that a machine is gone; otherwise the lock would stay held for hours.
_SET_KEEPALIVE = "SELECT set_config(%s, %s, false)"
_KEEPALIVES = ("keepalives_idle", "keepalives_interval", "keepalives_count")


class AgentLock:
    """A lock that is held."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection
        # With the name: after a restart of the server, the pid alone may be somebody else's.
        name = connection.info.parameter_status("application_name")
        self.holder = (connection.info.backend_pid, name)

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

    `lost` is the lock that this agent held until its connection ended: a server that still counts
    that connection has only not noticed its end yet.
    """
    url = databases.at_region(region, ROLE).url.render_as_string(hide_password=False)
    me = f"durable agent, pid {os.getpid()} on {socket.gethostname()}"
    doing = f"take the agent lock of {region}"
    with explained(doing):
        session = await open_session(url, me[:NAME_CHARACTERS])
    async with session as connection:
        with explained(doing):
            async with asyncio.timeout(STATEMENT_TIMEOUT_SECONDS):
                for name in _KEEPALIVES:
                    await connection.execute(_SET_KEEPALIVE, [f"tcp_{name}", str(KEEPALIVE[name])])
                await _take(connection, region, lost)
        yield AgentLock(connection)


@regional_transaction(ROLE, "look at the agent lock of {region}")
async def is_agent_lock_free(connection: AsyncConnection, region: RegionId) -> bool:
    """Whether nobody holds the region's agent lock at this moment."""
    return bool(await connection.scalar(_IS_FREE, {"name": _name_of(region)}))


def _name_of(region: RegionId) -> str:
    return f"durable simulated {region}"


async def _take(
    connection: psycopg.AsyncConnection, region: RegionId, lost: AgentLock | None
) -> None:
    name, give_up = _name_of(region), time.monotonic() + PATIENCE_SECONDS
    while True:
        taken = await (await connection.execute(_TAKE, [name])).fetchone()
        if taken is not None and taken[0]:
            return
        if time.monotonic() > give_up:
            break
        await asyncio.sleep(POLL_SECONDS)
    row = await (await connection.execute(_HOLDER, [name])).fetchone()
    if row is not None and lost is not None and row[:2] == lost.holder:
        raise AuthorityUnreachableError(
            f"Could not take the agent lock of {region} again: PostgreSQL still counts the "
            "connection that was lost; it notices within seconds."
        )
    holder = "another agent"
    if row is not None:
        holder = f"{row[1]}, since {row[2].astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    raise RefusedError(
        RefusalCode.NODES_HOSTED,
        f"The declared nodes of {region} are hosted by {holder}, and a second agent would fight it "
        "over them. Use that agent (`durable up` runs one for all regions), or stop it first.",
    )
