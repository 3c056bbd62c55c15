"""A region's grants: the part of a tenant's quota that the region may spend on its own.

Each half of a transfer is recorded with the transfer's id, so a half that is sent again changes
nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.authority.quota.quotas import ROLE, amount_of, amount_parameters, clipped_of
from durable.model.ids import RegionId, TenantId
from durable.model.refusal import Refusal, RefusalCode
from durable.model.resources import NOTHING, ZERO, Amounts, Resources, minus

_FIND_CHANGE = text("""
    SELECT * FROM regional.grant_changes WHERE region = :region AND transfer = :transfer
""")

_READ = text("""
    SELECT * FROM regional.free_grants(:now) WHERE region = :region AND tenant = :tenant
""")

# Also of those that were never granted anything here.
_OVERDRAFTS = text("""
    SELECT o.tenant, coalesce(g.rest_cpu_millis, -o.cpu_millis) AS rest_cpu_millis,
           coalesce(g.rest_memory_mib, -o.memory_mib) AS rest_memory_mib,
           coalesce(g.rest_gpus, -o.gpus) AS rest_gpus
      FROM regional.overdrawn(statement_timestamp()) AS o
      LEFT JOIN regional.free_grants(statement_timestamp()) AS g USING (region, tenant)
     WHERE o.region = :region
""")

_ADD = text("""
    INSERT INTO regional.grants AS g
           (region, tenant, granted_cpu_millis, granted_memory_mib, granted_gpus,
            protected_cpu_millis, protected_memory_mib, protected_gpus)
    VALUES (:region, :tenant, :cpu_millis, :memory_mib, :gpus,
            least(:cpu_millis, :protected_cpu_millis), least(:memory_mib, :protected_memory_mib),
            least(:gpus, :protected_gpus))
        ON CONFLICT (region, tenant) DO UPDATE
       SET granted_cpu_millis = g.granted_cpu_millis + :cpu_millis,
           granted_memory_mib = g.granted_memory_mib + :memory_mib,
           granted_gpus = g.granted_gpus + :gpus,
           protected_cpu_millis = least(g.granted_cpu_millis + :cpu_millis,
                                        g.protected_cpu_millis + :protected_cpu_millis),
           protected_memory_mib = least(g.granted_memory_mib + :memory_mib,
                                        g.protected_memory_mib + :protected_memory_mib),
           protected_gpus = least(g.granted_gpus + :gpus, g.protected_gpus + :protected_gpus)
""")

_TAKE = text("""
    UPDATE regional.grants
       SET granted_cpu_millis = granted_cpu_millis - :cpu_millis,
           granted_memory_mib = granted_memory_mib - :memory_mib,
           granted_gpus = granted_gpus - :gpus,
           protected_cpu_millis = protected_cpu_millis - :protected_cpu_millis,
           protected_memory_mib = protected_memory_mib - :protected_memory_mib,
           protected_gpus = protected_gpus - :protected_gpus,
           owed_cpu_millis = greatest(0, owed_cpu_millis - :cpu_millis),
           owed_memory_mib = greatest(0, owed_memory_mib - :memory_mib),
           owed_gpus = greatest(0, owed_gpus - :gpus)
     WHERE region = :region AND tenant = :tenant
""")

_RECORD_CHANGE = text("""
    INSERT INTO regional.grant_changes
           (region, transfer, tenant, cpu_millis, memory_mib, gpus, protected_cpu_millis,
            protected_memory_mib, protected_gpus, version, at)
    VALUES (:region, :transfer, :tenant, :sign * :cpu_millis, :sign * :memory_mib, :sign * :gpus,
            :sign * :protected_cpu_millis, :sign * :protected_memory_mib, :sign * :protected_gpus,
            :version, :now)
""")


@dataclass(frozen=True)
class GrantPart:
    """What a transfer moves of a tenant's grant, and how much of that is never preempted."""

    tenant: TenantId
    amount: Resources
    protected: Resources
    transfer: str

    def parameters(self, region: RegionId) -> dict[str, Any]:
        return {
            "region": region,
            "tenant": self.tenant,
            "transfer": self.transfer,
            **amount_parameters(self.amount),
            **amount_parameters(self.protected, "protected_"),
        }


@regional_transaction(ROLE, "take grant from {region}")
async def take_grant(
    connection: AsyncConnection, region: RegionId, part: GrantPart, *, and_owed: bool
) -> Refusal | Resources:
    """The giving half of a transfer; refused while more than the rest of the grant is in use.

    What is protected goes along as far as too little would be left here for it; answers how much. A
    refusal is recorded as a change of nothing: the same transfer, sent at the same time by another
    caller, cannot succeed after it.
    """
    locked = await lock_region(connection, region)
    now = await read_clock(connection)
    found = await _find_change(connection, region, part)
    left = await _read_left(connection, region, part.tenant, now)
    spare = left.rest if and_owed else left.free
    refusal = Refusal(
        code=RefusalCode.GRANT_IN_USE,
        sentence=f"{region} has {spare} of {part.tenant}'s grant unused, which is less than the "
        f"{part.amount} to take back; take less, or wait for usage to fall.",
    )
    if found is not None:
        taken = (-found["cpu_millis"], -found["memory_mib"], -found["gpus"])
        return _protected_of(found) if taken == part.amount.amounts else refusal
    if not part.amount.fits_in(spare):
        change = {**part.parameters(region), "version": locked.version, "now": now}
        await connection.execute(_RECORD_CHANGE, {**change, "sign": 0})
        return refusal
    return await _take(connection, region, part, left, now)


@regional_transaction(ROLE, "take lapsed grant from {region}")
async def take_lapsed(
    connection: AsyncConnection, region: RegionId, part: GrantPart
) -> Refusal | Resources:
    """What the books have taken already; asked again until what used it has been released."""
    await lock_region(connection, region)
    now = await read_clock(connection)
    found = await _find_change(connection, region, part)
    if found is not None:
        return _protected_of(found)
    left = await _read_left(connection, region, part.tenant, now)
    if not part.amount.fits_in(left.rest):
        return Refusal(
            code=RefusalCode.GRANT_IN_USE,
            sentence=f"{part.amount} of {part.tenant}'s grant in {region} have lapsed, and only "
            f"{left.rest} of it are unused; wait until what others run by now is stopped there.",
        )
    return await _take(connection, region, part, left, now)


async def _find_change(connection: AsyncConnection, region: RegionId, part: GrantPart) -> Any:
    of = {"region": region, "transfer": part.transfer}
    return (await connection.execute(_FIND_CHANGE, of)).mappings().one_or_none()


def _protected_of(change: Any) -> Resources:
    names = ("protected_cpu_millis", "protected_memory_mib", "protected_gpus")
    return Resources.of(*(-change[name] for name in names))


async def _take(
    connection: AsyncConnection, region: RegionId, part: GrantPart, left: "GrantLeft", now: datetime
) -> Resources:
    kept = left.granted - part.amount
    displaced = left.protected.excess_over(kept)
    protected = displaced + part.protected.lower_of(left.protected).excess_over(displaced)
    taken = replace(part, protected=protected)
    version = await advance_region(connection, region)
    change = {**taken.parameters(region), "version": version, "sign": -1, "now": now}
    await connection.execute(_TAKE, change)
    await connection.execute(_RECORD_CHANGE, change)
    return protected


@regional_transaction(ROLE, "add grant to {region}")
async def add_grant(connection: AsyncConnection, region: RegionId, part: GrantPart) -> None:
    """The receiving half of a transfer."""
    await lock_region(connection, region)
    if await _find_change(connection, region, part) is not None:
        return
    now = await read_clock(connection)
    version = await advance_region(connection, region)
    change = {**part.parameters(region), "version": version, "sign": 1, "now": now}
    await connection.execute(_ADD, change)
    await connection.execute(_RECORD_CHANGE, change)


_OWE = text("""
    UPDATE regional.grants
       SET owed_cpu_millis = least(:cpu_millis, granted_cpu_millis),
           owed_memory_mib = least(:memory_mib, granted_memory_mib),
           owed_gpus = least(:gpus, granted_gpus)
     WHERE region = :region AND tenant = :tenant
       AND (owed_cpu_millis, owed_memory_mib, owed_gpus)
           IS DISTINCT FROM (least(:cpu_millis, granted_cpu_millis),
                             least(:memory_mib, granted_memory_mib), least(:gpus, granted_gpus))
""")


@regional_transaction(ROLE, "reclaim the grant of {tenant} in {region}")
async def owe_grant(
    connection: AsyncConnection, region: RegionId, tenant: TenantId, amount: Resources
) -> None:
    """Keeps so much of the grant from new reservations, because a lowered quota wants it back."""
    await lock_region(connection, region)
    of = {"region": region, "tenant": tenant, **amount_parameters(amount)}
    if (await connection.execute(_OWE, of)).rowcount:
        await advance_region(connection, region)


@dataclass(frozen=True)
class GrantLeft:
    """A tenant's grant in a region, and what is left of it: see `regional.free_grants`."""

    granted: Resources = ZERO
    protected: Resources = ZERO
    # For new reservations, and for other regions.
    free: Resources = ZERO
    # With what a lowered quota wants back.
    rest: Resources = ZERO


@regional_transaction("durable_reader", "read the grant of {tenant} in {region}")
async def read_grant_left(
    connection: AsyncConnection, region: RegionId, tenant: TenantId
) -> GrantLeft:
    return await _read_left(connection, region, tenant, await read_clock(connection))


async def _read_left(
    connection: AsyncConnection, region: RegionId, tenant: TenantId, now: datetime
) -> GrantLeft:
    found = await connection.execute(_READ, {"region": region, "tenant": tenant, "now": now})
    row = found.mappings().one_or_none()
    if row is None:
        return GrantLeft()
    return GrantLeft(
        granted=amount_of(row, "granted_"),
        protected=amount_of(row, "protected_"),
        free=clipped_of(row, "free_"),
        rest=clipped_of(row, "rest_"),
    )


@regional_transaction("durable_reader", "read what is overdrawn in {region}")
async def read_overdrafts(
    connection: AsyncConnection, region: RegionId
) -> dict[TenantId, Resources]:
    """What runs beside the grants of the region on emergency quotas that are over.

    Grant that is free elsewhere, or not granted yet, has to come here before the tenant gets
    anything new on it: or what was to end with the emergency quota would last for ever.
    """
    rows = await connection.execute(_OVERDRAFTS, {"region": region})
    beside = {
        TenantId(row["tenant"]): Resources.clipped(minus(NOTHING, _rest(row)))
        for row in rows.mappings()
    }
    return {tenant: amount for tenant, amount in beside.items() if not amount.is_zero}


def _rest(row: Any) -> Amounts:
    return (row["rest_cpu_millis"], row["rest_memory_mib"], row["rest_gpus"])
