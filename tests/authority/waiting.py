"""Waits until others wait: a race begins when everybody waits for the lock."""

import asyncio

import psycopg

POLLS = 18_000
POLL_SECONDS = 0.01


async def until_waiting(gate: psycopg.AsyncConnection, count: int = 1) -> list[int]:
    """The backends of this database that wait for a lock, once there are so many."""
    for _ in range(POLLS):
        # A new look at the activity, without ending the transaction that holds the lock.
        await gate.execute("SELECT pg_stat_clear_snapshot()")
        rows = await gate.execute(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        waiting = [pid for (pid,) in await rows.fetchall()]
        if len(waiting) == count:
            return waiting
        await asyncio.sleep(POLL_SECONDS)
    raise AssertionError(f"{count} never came to wait for a lock")
