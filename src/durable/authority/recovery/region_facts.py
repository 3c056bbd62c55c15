"""What the global side knows of the regions: their epochs, states and leases."""

from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.locks import fence_of, hold_lock
from durable.authority.db.transaction import global_transaction
from durable.authority.fleet.regions import unknown_region
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import RegionId

_FIELDS = """region, epoch, state, since, reason, evidence, lease_expires_at, lease_holder,
           lease_number, known_number, lease_seconds, is_leased_fenced, watched_at, seen,
           maintenance,
           clock_timestamp() AS read_at"""
_ALL = text(f"SELECT {_FIELDS} FROM global.regions ORDER BY region")
_ONE = text(f"SELECT {_FIELDS} FROM global.regions WHERE region = :region")
_LOCK = text(f"SELECT {_FIELDS} FROM global.regions WHERE region = :region FOR NO KEY UPDATE")


@global_transaction("durable_reader", "read the regions")
async def read_facts(connection: AsyncConnection) -> dict[RegionId, RegionFact]:
    """Every region that was ever declared."""
    return {
        RegionId(row["region"]): fact_of(row) for row in (await connection.execute(_ALL)).mappings()
    }


@global_transaction("durable_reader", "read region {region}")
async def read_fact(connection: AsyncConnection, region: RegionId) -> RegionFact:
    return await _one(connection, _ONE, region)


async def lock_fact(connection: AsyncConnection, region: RegionId) -> RegionFact:
    """The region's fact, which nothing else changes until this transaction ends."""
    return await _one(connection, _LOCK, region)


async def hold_fact(connection: AsyncConnection, region: RegionId) -> RegionFact:
    """The region's fact for a transaction that relies on its fence: it is not opened meanwhile."""
    await hold_lock(connection, fence_of(region), is_shared=True)
    return await _one(connection, _ONE, region)


async def wait_for_holders(connection: AsyncConnection, region: RegionId) -> None:
    """Until no transaction relies on the region's fence, and none begins to until this ends."""
    await hold_lock(connection, fence_of(region))


async def _one(connection: AsyncConnection, statement: Any, region: RegionId) -> RegionFact:
    row = (await connection.execute(statement, {"region": region})).mappings().one_or_none()
    if row is None:
        raise unknown_region(region)
    return fact_of(row)


def fact_of(row: Any) -> RegionFact:
    return RegionFact.read(dict(row))
