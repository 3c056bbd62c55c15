"""The lease on which a region lives: renewed on the global side, then copied into the region.

The region's clock is read first, so the region's lease ends no later than the global side's,
although the two clocks are never compared. When the global side's has lapsed, and a margin for
clocks that run at different speeds, the region has stopped by itself: it need not be reached.

A clock may jump. One that went back ends the region's lease at once, and nothing is renewed across
that: how much of the lease was over by then, nobody knows. One that went ahead lets it lapse.

Each renewal has a number that both sides keep. The region's is read before the global side's, so
the region cannot have the higher one unless the global side was restored from an older copy; nor
can it have less than it has shown before, unless the region was. Neither gets or gives a lease.
"""

from datetime import datetime, timedelta

from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import WentBackError
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.jumped_clock import settle_clock
from durable.authority.fleet.regions import HELD_LEASE, held_lease, lock_region, unknown_region
from durable.authority.recovery.fence import obey
from durable.authority.recovery.region_facts import lock_fact, read_fact
from durable.authority.restores.found import find_global_side, find_region
from durable.model.fleet.region_life import HeldLease, LeaseLeft, RegionFact, RegionLease
from durable.model.ids import RegionId

_CLOCK = text(f"""
    SELECT coalesce(CAST(:now AS timestamptz), clock_timestamp()) AS now, {HELD_LEASE},
           lease_number
      FROM regional.regions WHERE region = :region
""")
_BEGIN = text("""
    UPDATE regional.regions SET lease_expires_at = :now, clock_seen_at = :now
     WHERE region = :region AND lease_expires_at IS NULL
""")
# The lease of a fenced region goes on only while it has not lapsed: slots that were handed over
# since then must not come to life there again.
_RENEW = text("""
    UPDATE global.regions
       SET lease_number = lease_number + 1, known_number = greatest(known_number, :number),
           lease_holder = :holder,
           lease_seconds = CASE WHEN lease_expires_at > clock_timestamp() + :length
                                THEN greatest(lease_seconds, :seconds) ELSE :seconds END,
           lease_expires_at = greatest(
               least(lease_expires_at, clock_timestamp() + make_interval(secs => lease_seconds)),
               clock_timestamp() + :length)
     WHERE region = :region
       AND (state <> 'fenced' OR is_leased_fenced AND lease_expires_at > clock_timestamp())
 RETURNING lease_number
""")
# That the region has it: from here on, a copy from before this renewal is recognised.
_CONFIRM = text("""
    UPDATE global.regions SET known_number = greatest(known_number, :number)
     WHERE region = :region
""")
# It was given before now, so it ends within its length from now.
_SETTLE_AHEAD = text("""
    UPDATE global.regions
       SET lease_expires_at = clock_timestamp() + make_interval(secs => lease_seconds)
     WHERE region = :region
       AND lease_expires_at > clock_timestamp() + make_interval(secs => lease_seconds)
""")
# A lease that had lapsed is announced: what waited for it is decided again.
_COPY = text("""
    UPDATE regional.regions
       SET lease_expires_at = greatest(lease_expires_at, :expires_at),
           lease_number = greatest(lease_number, :number),
           lease_seconds = CASE WHEN :expires_at >= lease_expires_at
                                THEN :seconds ELSE lease_seconds END,
           clock_seen_at = greatest(clock_seen_at, :now),
           version = version + (lease_expires_at <= :now)::integer
     WHERE region = :region
""")


async def renew(
    databases: Databases,
    region: RegionId,
    holder: str,
    *,
    lease_seconds: float,
    now: datetime | None = None,
) -> RegionLease:
    """Extends the region's lease; a region that was fenced meanwhile learns of it and obeys.

    A fenced region takes nothing new, lease or not. While it answers, what could not be moved out
    of it goes on.
    """
    before, held, number = await _read_clock(databases, region, now)
    if held is None:
        await read_fact(databases, region)  # refuses one that the global side does not know
        await _begin(databases, region, before)
    elif held.must_settle(before):
        went_back = await _settle(databases, region, now)
        fact = await read_fact(databases, region)
        return _lease(fact).model_copy(update={"went_back_seconds": went_back})
    fact, renewal = await _renew(databases, region, holder, lease_seconds, number)
    await _refuse_went_back(databases, fact, number)
    await obey(databases, fact)
    if renewal is None:
        return _lease(fact)
    went_back = await _copy(databases, region, before, lease_seconds, renewal, now)
    if went_back is not None:
        return _lease(fact).model_copy(update={"went_back_seconds": went_back})
    await _confirm(databases, region, renewal)
    expires_at = before + timedelta(seconds=lease_seconds)
    return _lease(fact).model_copy(update={"expires_at": expires_at})


def _lease(fact: RegionFact) -> RegionLease:
    return RegionLease(
        region=fact.region,
        epoch=fact.epoch,
        is_fenced=fact.is_fenced,
        is_restored=fact.is_restored,
    )


@global_transaction("durable_region", "settle the lease of {region}")
async def settle_ahead(connection: AsyncConnection, region: RegionId) -> None:
    """After the global side's clock went back: else a lost region would pass for one that lives."""
    await connection.execute(_SETTLE_AHEAD, {"region": region})


async def read_lease(databases: Databases, region: RegionId) -> LeaseLeft:
    """How much is left of what the region itself lives on."""
    now, held, _ = await _read_clock(databases, region, None)
    if held is None:
        return LeaseLeft(seconds=None)
    return LeaseLeft(seconds=held.seconds_left(now), has_jumped=held.has_jumped(now))


async def _refuse_went_back(databases: Databases, fact: RegionFact, number: int) -> None:
    """The region is asked again: another renewal may have overtaken this one since it was read."""
    if number > fact.lease_number:
        raise WentBackError(
            f"The lease of {fact.region} is not renewed: the global side knows of "
            f"{fact.lease_number} renewals, and the region has had {number}."
        )
    if number < fact.known_number and await find_region(
        databases, fact.region, known=fact.known_number
    ):
        raise WentBackError(
            f"The lease of {fact.region} is not renewed: the region has had {number} renewals, and "
            f"has shown to have had {fact.known_number}."
        )


@regional_transaction("durable_reader", "read the clock of {region}")
async def _read_clock(
    connection: AsyncConnection, region: RegionId, now: datetime | None
) -> tuple[datetime, HeldLease | None, int]:
    """The region's clock, the lease that it lives on already, and the number of that."""
    row = (await connection.execute(_CLOCK, {"region": region, "now": now})).one_or_none()
    if row is None:
        raise unknown_region(region)
    return row.now, held_lease(row), row.lease_number


@regional_transaction("durable_region", "begin the lease of {region}")
async def _begin(connection: AsyncConnection, region: RegionId, now: datetime) -> None:
    """From here on, the region takes nothing without a lease.

    That comes before the global side grants one: it may rely on every region that ever had one.
    """
    await connection.execute(_BEGIN, {"region": region, "now": now})


@regional_transaction("durable_region", "settle the clock of {region}")
async def _settle(
    connection: AsyncConnection, region: RegionId, now: datetime | None
) -> float | None:
    await lock_region(connection, region)
    return await settle_clock(connection, region, await read_clock(connection, now))


@global_transaction("durable_region", "renew the lease of {region}")
async def _renew(
    connection: AsyncConnection, region: RegionId, holder: str, seconds: float, number: int
) -> tuple[RegionFact, int | None]:
    """The number of the renewal; None if the lease was not extended."""
    fact = await lock_fact(connection, region)
    if number > fact.lease_number:
        await find_global_side(connection, region, has=number, knows=fact.lease_number)
        return fact, None
    if number < fact.known_number:
        return fact, None
    length = timedelta(seconds=seconds)
    renewal = {"region": region, "holder": holder, "seconds": seconds, "length": length}
    renewed = await connection.execute(_RENEW, {**renewal, "number": number})
    return fact, renewed.scalar_one_or_none()


@regional_transaction("durable_region", "extend the lease of {region}")
async def _copy(
    connection: AsyncConnection,
    region: RegionId,
    before: datetime,
    seconds: float,
    number: int,
    now: datetime | None,
) -> float | None:
    """Extends it as of the clock read before; how far the clock went back instead, if it did."""
    await lock_region(connection, region)
    at = await read_clock(connection, now)
    if (went_back := await settle_clock(connection, region, at, before)) is not None:
        return went_back
    expires_at = before + timedelta(seconds=seconds)
    copied = {"region": region, "now": at, "seconds": seconds, "expires_at": expires_at}
    await connection.execute(_COPY, {**copied, "number": number})
    return None


@global_transaction("durable_region", "confirm the lease of {region}")
async def _confirm(connection: AsyncConnection, region: RegionId, number: int) -> None:
    await connection.execute(_CONFIRM, {"region": region, "number": number})
