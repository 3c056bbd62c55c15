"""How old a worker's view of its region is, reported to the global side."""

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.model.ids import RegionId

_REPORT = text("""
    UPDATE global.regions
       SET watched_at = greatest(CASE WHEN watched_at <= clock_timestamp() THEN watched_at END,
                                 clock_timestamp() - make_interval(secs => :age))
     WHERE region = :region
""")


@global_transaction("durable_region", "report the view of {region}")
async def report_watch(
    connection: AsyncConnection, region: RegionId, *, age_seconds: float
) -> None:
    """Of two workers of a region the one that sees more counts."""
    await connection.execute(_REPORT, {"region": region, "age": age_seconds})
