"""The time by the database, which decides every lease, deadline and end."""

from datetime import datetime

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.model.ids import RegionId

# A statement of its own: one that waits for a lock would read it before the wait.
_CLOCK = text("SELECT clock_timestamp()")


async def read_clock(connection: AsyncConnection, now: datetime | None = None) -> datetime:
    """In a transaction that has its lock: what is decided under the lock goes by this.

    A test may give the moment instead.
    """
    return now or (await connection.execute(_CLOCK)).scalar_one()


@global_transaction("durable_reader", "read the time")
async def read_time(connection: AsyncConnection) -> datetime:
    """The global side's clock."""
    return await read_clock(connection)


@regional_transaction("durable_reader", "read the time in {region}")
async def read_regional_time(connection: AsyncConnection, region: RegionId) -> datetime:
    """The region's own clock."""
    return await read_clock(connection)
