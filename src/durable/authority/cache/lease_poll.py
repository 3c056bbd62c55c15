"""The light read of a region: its version, the leases of its nodes, its room and its clock.

Leases have no version and budgets end by the clock alone, so both are polled every few seconds.
Arrays rather than JSON or rows: tens of thousands of nodes are read in some milliseconds.
"""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.cache.region_read import ROOM
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.model.amounts import Amounts
from durable.model.ids import RegionId


@dataclass(frozen=True, slots=True)
class LeasePoll:
    """LeasePoll as three lists of one length; expiries are seconds since the epoch."""

    epoch: int
    version: int
    read_at: float
    room: Amounts
    nodes: list[str]
    lease_epochs: list[int]
    lease_expiries: list[float]


_POLL = text(f"""
    SELECT r.epoch, r.version, clock_timestamp() AS read_at, {ROOM},
           l.nodes, l.epochs, l.expiries
      FROM regional.regions AS r
     CROSS JOIN LATERAL (
           SELECT coalesce(array_agg(node), '{{}}') AS nodes,
                  coalesce(array_agg(epoch), '{{}}') AS epochs,
                  coalesce(array_agg(extract(epoch FROM expires_at)::float8), '{{}}') AS expiries
             FROM regional.node_leases WHERE region = r.region) AS l
     WHERE r.region = :region
""")


@regional_transaction("durable_reader", "read the leases of {region}")
async def poll_leases(connection: AsyncConnection, region: RegionId) -> LeasePoll:
    """The region's leases, room and version, as of one moment of its clock."""
    row = (await connection.execute(_POLL, {"region": region})).one_or_none()
    if row is None:
        raise unknown_region(region)
    room = (row.room_cpu_millis, row.room_memory_mib, row.room_gpus)
    return LeasePoll(
        row.epoch, row.version, row.read_at.timestamp(), room, row.nodes, row.epochs, row.expiries
    )
