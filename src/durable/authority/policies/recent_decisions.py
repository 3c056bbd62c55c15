"""What a region decided last, so that those decisions can be made again."""

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import RegionId
from durable.model.placement.records import Decision

_RECENT = text("""
    SELECT * FROM regional.decisions WHERE region = :region ORDER BY decided_at DESC LIMIT :most
""")


@regional_transaction("durable_reader", "read what {region} decided last")
async def read_recent_decisions(
    connection: AsyncConnection, region: RegionId, most: int
) -> list[Decision]:
    """The newest decisions, in the order of the versions that they were made on."""
    rows = (await connection.execute(_RECENT, {"region": region, "most": most})).mappings()
    return sorted((Decision(**dict(row)) for row in rows), key=lambda one: one.cache_version)
