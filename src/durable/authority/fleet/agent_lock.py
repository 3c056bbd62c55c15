"""The post of the one agent that stands for a region's declared nodes: a lock of its connection.

Two such agents would take each other's sessions for ever. The database lets go of a post when the
connection ends, so an agent that was killed leaves it at once, and its successor need not wait.
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
    transact,
)
from durable.authority.db.errors import AuthorityUnreachableError, explained
from durable.authority.db.session import open_session
from durable.authority.fleet.nodes import AGENT
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError

# A server needs a moment to notice that whoever held a post was killed.
PATIENCE_SECONDS = 1.0
POLL_SECONDS = 0.05
# What the server keeps of a name.
NAME_CHARACTERS = 63

_TAKE = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"

# What a transaction can have for its moment, nobody holds.
_IS_VACANT = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 0))")

_HOLDER = """
    SELECT a.pid, a.application_name, a.backend_start
      FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
       AND a.datname = current_database()
       AND (CAST(l.classid AS bigint) << 32 | CAST(l.objid AS bigint)) = hashtextextended(%s, 0)
"""

# The server, too, must notice that a machine is gone: its post would stay taken for hours.
_NOTICE = "SELECT set_config(%s, %s, false)"
_KEEPALIVES = ("keepalives_idle", "keepalives_interval", "keepalives_count")


class Post:
    """A post that is held."""

    def __init__(self, connection: psycopg.AsyncConnection) -> None:
        self._connection = connection
        # As the server tells it: a pid alone may be another's after the server was started anew.
        name = connection.info.parameter_status("application_name")
        self.holder = (connection.info.backend_pid, name)

    async def until_lost(self) -> None:
        """Ends with an error when the connection does, and never otherwise."""
        with explained("hold the post"):
            async with aclosing(self._connection.notifies()) as heard:
                async for _ in heard:
                    pass


@asynccontextmanager
async def take_post(
    databases: Databases, region: RegionId, *, again: Post | None = None
) -> AsyncGenerator[Post]:
    """Holds the region's post, or refuses with who holds it.

    The post that was lost is `again`: a server that still keeps it for us has only not noticed.
    """
    url = databases.at_region(region, AGENT).url.render_as_string(hide_password=False)
    me = f"durable agent, pid {os.getpid()} on {socket.gethostname()}"
    doing = f"take the post of {region}"
    with explained(doing):
        session = await open_session(url, me[:NAME_CHARACTERS])
    async with session as connection:
        with explained(doing):
            async with asyncio.timeout(STATEMENT_TIMEOUT_SECONDS):
                for name in _KEEPALIVES:
                    await connection.execute(_NOTICE, [f"tcp_{name}", str(KEEPALIVE[name])])
                await _take(connection, region, again)
        yield Post(connection)


async def is_vacant(databases: Databases, region: RegionId) -> bool:
    """Whether nobody holds the region's post at this moment."""

    async def work(connection: AsyncConnection) -> bool:
        return bool(await connection.scalar(_IS_VACANT, {"name": _lock_of(region)}))

    engine = databases.at_region(region, AGENT)
    return await transact(engine, work, doing=f"look at the post of {region}")


def _lock_of(region: RegionId) -> str:
    return f"durable simulated {region}"


async def _take(connection: psycopg.AsyncConnection, region: RegionId, again: Post | None) -> None:
    name, give_up = _lock_of(region), time.monotonic() + PATIENCE_SECONDS
    while True:
        taken = await (await connection.execute(_TAKE, [name])).fetchone()
        if taken is not None and taken[0]:
            return
        if time.monotonic() > give_up:
            break
        await asyncio.sleep(POLL_SECONDS)
    row = await (await connection.execute(_HOLDER, [name])).fetchone()
    if row is not None and again is not None and row[:2] == again.holder:
        raise AuthorityUnreachableError(
            f"Could not take the post of {region} again: PostgreSQL still counts the connection "
            "that was lost; it notices within seconds."
        )
    holder = "another agent"
    if row is not None:
        holder = f"{row[1]}, since {row[2].astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    raise RefusedError(
        RefusalCode.NODES_HOSTED,
        f"The declared nodes of {region} are kept by {holder}; two would fight over them. "
        "Use that one (durable up runs one for all regions), or end it first.",
    )
