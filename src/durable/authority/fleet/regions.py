"""Regions: add one, read one, lock it, and keep its statistics current."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import ask_databases
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.model.fleet.capacity import RegionStatus
from durable.model.fleet.region_life import HeldLease
from durable.model.ids import ActorId, RegionId, ZoneId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState

_DECLARE = text("INSERT INTO global.regions (region) VALUES (:region) ON CONFLICT DO NOTHING")
_ADD = text("INSERT INTO regional.regions (region) VALUES (:region) ON CONFLICT DO NOTHING")
_ADD_ZONES = text("""
    INSERT INTO regional.zones (region, zone)
    SELECT :region, unnest(CAST(:zones AS text[])) ON CONFLICT DO NOTHING RETURNING zone
""")
_LIST = text("SELECT region FROM regional.regions ORDER BY region")
# What `held_lease` reads of a region's row.
HELD_LEASE = "lease_expires_at, lease_seconds, clock_seen_at, clock_went_back_at"
_READ = text("SELECT epoch, version, state FROM regional.regions WHERE region = :region")
_LOCK = text(
    "SELECT epoch, version, state FROM regional.regions WHERE region = :region FOR NO KEY UPDATE"
)
_ADVANCE = text("""
    UPDATE regional.regions SET version = version + 1 WHERE region = :region RETURNING version
""")


async def add_region(
    databases: Databases, region: RegionId, actor: ActorId, zones: Sequence[ZoneId] = ()
) -> None:
    """Adds a region and its zones; adding them again changes nothing.

    Where zones are declared, nodes register in no other; zones are never taken away.
    """
    if region == audit.GLOBAL_CHAIN:
        raise RefusedError(
            RefusalCode.UNKNOWN_REGION,
            f"A region cannot be called {region}, which is the global side's name; choose another.",
        )
    await _declare(databases, region)
    await _add(databases, region, actor, zones)


@global_transaction("durable_operator", "declare region {region}")
async def _declare(connection: AsyncConnection, region: RegionId) -> None:
    await connection.execute(_DECLARE, {"region": region})


@regional_transaction("durable_operator", "add region {region}")
async def _add(
    connection: AsyncConnection, region: RegionId, actor: ActorId, zones: Sequence[ZoneId]
) -> None:
    if (await connection.execute(_ADD, {"region": region})).rowcount:
        await audit.append(
            connection, region, actor=actor, action="add region", target=f"region/{region}"
        )
    declared = {"region": region, "zones": [str(zone) for zone in zones]}
    added = (await connection.execute(_ADD_ZONES, declared)).scalars().all()
    if added:
        await audit.append(
            connection,
            region,
            actor=actor,
            action="declare zones",
            target=f"region/{region}",
            after={"zones": sorted(added)},
        )


async def list_regions(databases: Databases) -> list[RegionId]:
    """The regions of every database, also those of a database that does not answer."""
    found, missing = await ask_databases(databases, lambda url: regions_at(databases, url))
    return sorted({*missing, *chain.from_iterable(found)})


async def regions_at(databases: Databases, url: str) -> list[RegionId]:
    """The regions of one database."""
    engine = databases.at(url, "durable_reader")
    return await transact(engine, _list_regions, doing="read the regions")


async def _list_regions(connection: AsyncConnection) -> list[RegionId]:
    return [RegionId(name) for name in (await connection.execute(_LIST)).scalars()]


@regional_transaction("durable_reader", "read region {region}")
async def read_region(connection: AsyncConnection, region: RegionId) -> RegionStatus:
    row = (await connection.execute(_READ, {"region": region})).one_or_none()
    if row is None:
        raise unknown_region(region)
    return _status(region, row)


async def lock_region(connection: AsyncConnection, region: RegionId) -> RegionStatus:
    """The first statement of every regional transaction; see regional_commit for why."""
    row = (await connection.execute(_LOCK, {"region": region})).one_or_none()
    if row is None:
        raise unknown_region(region)
    return _status(region, row)


async def advance_region(connection: AsyncConnection, region: RegionId) -> int:
    """The next version of a locked region, announced to its watchers at COMMIT."""
    return (await connection.execute(_ADVANCE, {"region": region})).scalar_one()


def _status(region: RegionId, row: Any) -> RegionStatus:
    state = RegionState(row.state)
    return RegionStatus(region=region, epoch=row.epoch, version=row.version, state=state)


def held_lease(row: Any) -> HeldLease | None:
    """The lease that the region lives on; None: on none yet."""
    if row.lease_expires_at is None:
        return None
    return HeldLease(
        expires_at=row.lease_expires_at,
        length_seconds=row.lease_seconds,
        seen_at=row.clock_seen_at,
        went_back_at=row.clock_went_back_at,
    )


def unknown_region(region: RegionId) -> RefusedError:
    return RefusedError(
        RefusalCode.UNKNOWN_REGION, f"There is no region {region}; see `durable fleet show`."
    )


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
