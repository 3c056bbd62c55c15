"""What statements touch of the tables, whoever sends them: the database's own counters."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg

POLLS = 2_000
POLL_SECONDS = 0.005

# Blocks too: a scan of a whole index counts no rows when it finds none.
_COUNTERS = """
    SELECT s.schemaname || '.' || s.relname, coalesce(s.seq_tup_read, 0),
           coalesce(io.heap_blks_hit + io.heap_blks_read, 0)
           + coalesce(io.idx_blks_hit + io.idx_blks_read, 0)
      FROM pg_stat_user_tables AS s JOIN pg_statio_user_tables AS io USING (relid)
"""


@dataclass
class Touched:
    """By table: rows read by sequential scans, and blocks read for whatever reason."""

    rows_scanned: dict[str, int] = field(default_factory=dict[str, int])
    blocks: dict[str, int] = field(default_factory=dict[str, int])


@asynccontextmanager
async def touching(url: str) -> AsyncGenerator[Touched]:
    """Counts what is touched inside; whoever connects inside must have left the database by then,
    because a connection hands in its counters when it ends."""
    touched = Touched()
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await _alone(connection)
        before = await _counters(connection)
        yield touched
        await _alone(connection)
        for table, (rows, blocks) in (await _counters(connection)).items():
            rows_before, blocks_before = before.get(table, (0, 0))
            touched.rows_scanned[table] = rows - rows_before
            touched.blocks[table] = blocks - blocks_before


async def _counters(connection: psycopg.AsyncConnection) -> dict[str, tuple[int, int]]:
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    rows = await connection.execute(_COUNTERS)
    return {table: (scanned, blocks) for table, scanned, blocks in await rows.fetchall()}


async def _alone(connection: psycopg.AsyncConnection) -> None:
    for _ in range(POLLS):
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        others = await connection.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        if await others.fetchone() is None:
            return
        await asyncio.sleep(POLL_SECONDS)
    raise AssertionError("somebody else never left the database")
