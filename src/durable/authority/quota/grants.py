"""A region's grants: the part of a tenant's quota that the region may spend on its own.

Each half of a transfer is recorded with the transfer's id, so a half that is sent again changes
nothing.
"""

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.authority.quota.quotas import ROLE, amount_of, amount_parameters, unknown_tenant
from durable.model.ids import RegionId, TenantId
from durable.model.refusal import Refusal, RefusalCode
from durable.model.resources import ZERO, Resources

_FIND_CHANGE = text("""
    SELECT * FROM regional.grant_changes WHERE region = :region AND transfer = :transfer
""")

_READ = text("SELECT * FROM regional.grants WHERE region = :region AND tenant = :tenant")

_ADD = text("""
    INSERT INTO regional.grants AS g
           (region, tenant, granted_cpu_millis, granted_memory_mib, granted_gpus)
    VALUES (:region, :tenant, :cpu_millis, :memory_mib, :gpus)
        ON CONFLICT (region, tenant) DO UPDATE
       SET granted_cpu_millis = g.granted_cpu_millis + :cpu_millis,
           granted_memory_mib = g.granted_memory_mib + :memory_mib,
           granted_gpus = g.granted_gpus + :gpus
""")

_TAKE = text("""
    UPDATE regional.grants
       SET granted_cpu_millis = granted_cpu_millis - :cpu_millis,
           granted_memory_mib = granted_memory_mib - :memory_mib,
           granted_gpus = granted_gpus - :gpus,
           protected_cpu_millis = least(protected_cpu_millis, granted_cpu_millis - :cpu_millis),
           protected_memory_mib = least(protected_memory_mib, granted_memory_mib - :memory_mib),
           protected_gpus = least(protected_gpus, granted_gpus - :gpus),
           owed_cpu_millis = greatest(0, owed_cpu_millis - :cpu_millis),
           owed_memory_mib = greatest(0, owed_memory_mib - :memory_mib),
           owed_gpus = greatest(0, owed_gpus - :gpus)
     WHERE region = :region AND tenant = :tenant
""")

_RECORD_CHANGE = text("""
    INSERT INTO regional.grant_changes
           (region, transfer, tenant, cpu_millis, memory_mib, gpus, version, at)
    VALUES (:region, :transfer, :tenant, :sign * :cpu_millis, :sign * :memory_mib, :sign * :gpus,
            :version, clock_timestamp())
""")

_PROTECT = text("""
    UPDATE regional.grants
       SET protected_cpu_millis = least(:cpu_millis, granted_cpu_millis),
           protected_memory_mib = least(:memory_mib, granted_memory_mib),
           protected_gpus = least(:gpus, granted_gpus)
     WHERE region = :region AND tenant = :tenant RETURNING tenant
""")


@regional_transaction(ROLE, "take grant from {region}")
async def take_grant(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    amount: Resources,
    transfer: str,
) -> Refusal | None:
    """The giving half of a transfer; refused while more than the rest of the grant is in use.

    A refusal is recorded as a change of nothing: the same transfer, sent at the same time by
    another caller, cannot succeed after it.
    """
    locked = await lock_region(connection, region)
    of = {"region": region, "transfer": transfer, "tenant": tenant}
    change = {**of, **amount_parameters(amount), "version": locked.version, "sign": -1}
    found = (await connection.execute(_FIND_CHANGE, of)).mappings().one_or_none()
    unused = await _unused(connection, region, tenant)
    refusal = Refusal(
        code=RefusalCode.GRANT_IN_USE,
        sentence=f"{region} has {unused} of {tenant}'s grant unused, which is less than the "
        f"{amount} to take back; take less, or wait for usage to fall.",
    )
    if found is not None:
        is_taken = (-found["cpu_millis"], -found["memory_mib"], -found["gpus"]) == amount.amounts
        return None if is_taken else refusal
    if not amount.fits_in(unused):
        await connection.execute(_RECORD_CHANGE, {**change, "sign": 0})
        return refusal
    version = await advance_region(connection, region)
    await connection.execute(_TAKE, change)
    await connection.execute(_RECORD_CHANGE, {**change, "version": version})
    return None


@regional_transaction(ROLE, "take lapsed grant from {region}")
async def take_lapsed(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    amount: Resources,
    transfer: str,
) -> Refusal | None:
    """What the books have taken already; asked again until what used it has been released."""
    await lock_region(connection, region)
    of = {"region": region, "transfer": transfer, "tenant": tenant}
    if (await connection.execute(_FIND_CHANGE, of)).one_or_none() is not None:
        return None
    unused = await _unused(connection, region, tenant)
    if not amount.fits_in(unused):
        return Refusal(
            code=RefusalCode.GRANT_IN_USE,
            sentence=f"{amount} of {tenant}'s grant in {region} have lapsed, and only {unused} of "
            "it are unused; wait until what others run by now is stopped there.",
        )
    version = await advance_region(connection, region)
    change = {**of, **amount_parameters(amount), "version": version, "sign": -1}
    await connection.execute(_TAKE, change)
    await connection.execute(_RECORD_CHANGE, change)
    return None


@regional_transaction(ROLE, "add grant to {region}")
async def add_grant(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    amount: Resources,
    transfer: str,
) -> None:
    """The receiving half of a transfer."""
    await lock_region(connection, region)
    of = {"region": region, "transfer": transfer, "tenant": tenant}
    if (await connection.execute(_FIND_CHANGE, of)).one_or_none() is not None:
        return
    version = await advance_region(connection, region)
    change = {**of, **amount_parameters(amount), "version": version, "sign": 1}
    await connection.execute(_ADD, change)
    await connection.execute(_RECORD_CHANGE, change)


@regional_transaction(ROLE, "protect {tenant} in {region}")
async def protect_grant(
    connection: AsyncConnection, region: RegionId, tenant: TenantId, amount: Resources
) -> None:
    """Marks part of a region's grant as capacity that preemption never takes."""
    await lock_region(connection, region)
    of = {"region": region, "tenant": tenant, **amount_parameters(amount)}
    if (await connection.execute(_PROTECT, of)).one_or_none() is None:
        raise unknown_tenant(tenant)


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


@regional_transaction("durable_reader", "read the grant of {tenant} in {region}")
async def read_unused_grant(
    connection: AsyncConnection, region: RegionId, tenant: TenantId
) -> Resources:
    return await _unused(connection, region, tenant)


async def _unused(connection: AsyncConnection, region: RegionId, tenant: TenantId) -> Resources:
    found = await connection.execute(_READ, {"region": region, "tenant": tenant})
    row = found.mappings().one_or_none()
    return ZERO if row is None else amount_of(row, "granted_") - amount_of(row, "used_")
