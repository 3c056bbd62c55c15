"""The lease on which a region lives: renewed on the global side, then copied into the region.

The region's clock is read first, so the region's lease ends no later than the global side's,
although the two clocks are never compared. When the global side's has lapsed, and a margin for
clocks that run at different speeds, the region has stopped by itself: it need not be reached.
"""

from datetime import datetime, timedelta

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import lock_region, unknown_region
from durable.authority.recovery.fence import obey
from durable.authority.recovery.region_facts import lock_fact, read_fact
from durable.model.fleet.region_life import RegionFact, RegionLease
from durable.model.ids import RegionId

_CLOCK = text("""
    SELECT clock_timestamp() AS now, lease_expires_at IS NOT NULL AS is_leased
      FROM regional.regions WHERE region = :region
""")
_BEGIN = text("""
    UPDATE regional.regions SET lease_expires_at = :now
     WHERE region = :region AND lease_expires_at IS NULL
""")
# The lease of a fenced region goes on only while it has not lapsed: slots that were handed over
# since then must not come to life there again.
_RENEW = text("""
    UPDATE global.regions
       SET lease_number = lease_number + 1, lease_holder = :holder,
           lease_seconds = :seconds,
           lease_expires_at = greatest(
               lease_expires_at, clock_timestamp() + make_interval(secs => :seconds))
     WHERE region = :region
       AND (state <> 'fenced' OR is_leased_fenced AND lease_expires_at > clock_timestamp())
""")
# A lease that had lapsed is announced: what waited for it is decided again.
_COPY = text("""
    UPDATE regional.regions
       SET lease_expires_at = greatest(lease_expires_at, :expires_at),
           version = version + (lease_expires_at <= clock_timestamp())::integer
     WHERE region = :region
""")


async def renew(
    databases: Databases, region: RegionId, holder: str, *, lease_seconds: float
) -> RegionLease:
    """Extends the region's lease; a region that was fenced meanwhile learns of it and obeys.

    A fenced region takes nothing new, lease or not. While it answers, what could not be moved out
    of it goes on.
    """
    before, is_leased = await _read_clock(databases, region)
    if not is_leased:
        await read_fact(databases, region)  # refuses one that the global side does not know
        await _begin(databases, region, before)
    fact, is_renewed = await _renew(databases, region, holder, lease_seconds)
    await obey(databases, fact)
    lease = RegionLease(region=region, epoch=fact.epoch, is_fenced=fact.is_fenced)
    if not is_renewed:
        return lease
    expires_at = before + timedelta(seconds=lease_seconds)
    await _copy(databases, region, expires_at)
    return lease.model_copy(update={"expires_at": expires_at})


@regional_transaction("durable_reader", "read the clock of {region}")
async def _read_clock(connection: AsyncConnection, region: RegionId) -> tuple[datetime, bool]:
    """The region's clock, and whether it lives on leases already."""
    row = (await connection.execute(_CLOCK, {"region": region})).one_or_none()
    if row is None:
        raise unknown_region(region)
    return row.now, row.is_leased


@regional_transaction("durable_region", "begin the lease of {region}")
async def _begin(connection: AsyncConnection, region: RegionId, now: datetime) -> None:
    """From here on, the region takes nothing without a lease.

    That comes before the global side grants one: it may rely on every region that ever had one.
    """
    await connection.execute(_BEGIN, {"region": region, "now": now})


@global_transaction("durable_region", "renew the lease of {region}")
async def _renew(
    connection: AsyncConnection, region: RegionId, holder: str, seconds: float
) -> tuple[RegionFact, bool]:
    fact = await lock_fact(connection, region)
    renewal = {"region": region, "holder": holder, "seconds": seconds}
    return fact, (await connection.execute(_RENEW, renewal)).rowcount == 1


@regional_transaction("durable_region", "extend the lease of {region}")
async def _copy(connection: AsyncConnection, region: RegionId, expires_at: datetime) -> None:
    await lock_region(connection, region)
    await connection.execute(_COPY, {"region": region, "expires_at": expires_at})
