"""Statistics that follow a region's growth, so that plans made for its first rows do not last."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.model.ids import RegionId

_ISSUED = text("SELECT tokens_issued FROM regional.regions WHERE region = :region")

_REFRESH = text("SELECT regional.refresh_statistics()")


async def tokens_issued(databases: Databases, region: RegionId) -> int:
    """How many reservations there have been in the region so far."""

    async def work(connection: AsyncConnection) -> int:
        return (await connection.execute(_ISSUED, {"region": region})).scalar_one_or_none() or 0

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read how much {region} has placed")


async def refresh_statistics(databases: Databases, region: RegionId) -> None:
    """Has the statistics of the region's tables taken again."""

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(_REFRESH)

    engine = databases.at_region(region, "durable_commit")
    await transact(engine, work, doing=f"refresh the statistics of {region}")
