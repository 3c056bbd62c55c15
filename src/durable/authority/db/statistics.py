"""Planner statistics that follow a region's growth: plans made for its first rows must not last."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import regional_transaction
from durable.model.ids import RegionId

_ISSUED = text("SELECT tokens_issued FROM regional.regions WHERE region = :region")

_REFRESH = text("SELECT regional.refresh_statistics()")


@regional_transaction("durable_reader", "read how many tokens {region} has issued")
async def tokens_issued(connection: AsyncConnection, region: RegionId) -> int:
    """How many reservations there have been in the region so far."""
    return (await connection.execute(_ISSUED, {"region": region})).scalar_one_or_none() or 0


@regional_transaction("durable_commit", "refresh the statistics of {region}")
async def refresh_statistics(connection: AsyncConnection, region: RegionId) -> None:
    """Has PostgreSQL analyze the tables of the region's database again."""
    await connection.execute(_REFRESH)
