"""Grants after a restore: the books and the regions' grants are brought to one another again.

Where the global side went back, regions that did not say what they have, and every transfer that
the restored books take for open is closed in both. Otherwise a region gets what the books say; what
it has beyond that is written down as lapsed, and is taken back before the region is opened.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.authority.quota.quotas import amount_of, amount_parameters
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.resources import ZERO, Resources

ROLE = "durable_restore"

_HAS = text("SELECT * FROM regional.grants WHERE region = :region")
_RECORDED = text("SELECT transfer FROM regional.grant_changes WHERE region = :region")
_BOOKS = text("SELECT * FROM global.grants WHERE region = :region")
_OPEN = text("""
    SELECT * FROM global.grant_transfers
     WHERE state IN ('requested', 'moved', 'lapsed') AND :region IN (from_region, to_region)
""")
_LAPSE = text("""
    INSERT INTO global.grant_transfers
           (transfer, tenant, from_region, cpu_millis, memory_mib, gpus, state, actor, requested_at)
    VALUES (:transfer, :tenant, :region, :cpu_millis, :memory_mib, :gpus, 'lapsed', :actor,
            clock_timestamp())
        ON CONFLICT (transfer) DO NOTHING
""")
_ADD = text("""
    INSERT INTO regional.grants AS g
           (region, tenant, granted_cpu_millis, granted_memory_mib, granted_gpus)
    VALUES (:region, :tenant, :cpu_millis, :memory_mib, :gpus)
        ON CONFLICT (region, tenant) DO UPDATE
       SET granted_cpu_millis = g.granted_cpu_millis + :cpu_millis,
           granted_memory_mib = g.granted_memory_mib + :memory_mib,
           granted_gpus = g.granted_gpus + :gpus
""")
_RECORD = text("""
    INSERT INTO regional.grant_changes
           (region, transfer, tenant, cpu_millis, memory_mib, gpus, version, at)
    VALUES (:region, :transfer, :tenant, :cpu_millis, :memory_mib, :gpus, :version,
            clock_timestamp())
        ON CONFLICT (region, transfer) DO NOTHING
""")
_CLOSE = text("""
    UPDATE global.grant_transfers
       SET state = CASE state WHEN 'requested' THEN 'refused' ELSE 'settled' END,
           settled_at = CASE state WHEN 'requested' THEN NULL ELSE clock_timestamp() END
     WHERE transfer = ANY(:transfers)
""")
_TENANT = text("""
    INSERT INTO global.tenants (tenant, created_at) VALUES (:tenant, clock_timestamp())
        ON CONFLICT DO NOTHING
""")
_QUOTA = text("INSERT INTO global.quotas (tenant) VALUES (:tenant) ON CONFLICT DO NOTHING")
# First to what is granted by then, whatever was meant to be; as after a lowered quota, the
# controller takes back what exceeds that, and nothing new is reserved from it.
_RAISE_HARD = text("""
    UPDATE global.quotas AS q
       SET hard_cpu_millis = greatest(hard_cpu_millis, granted_cpu_millis + :cpu_millis),
           hard_memory_mib = greatest(hard_memory_mib, granted_memory_mib + :memory_mib),
           hard_gpus = greatest(hard_gpus, granted_gpus + :gpus)
     WHERE tenant = :tenant
""")
_SET_BOOKS = text("""
    INSERT INTO global.grants AS g
           (tenant, region, granted_cpu_millis, granted_memory_mib, granted_gpus)
    VALUES (:tenant, :region, :cpu_millis, :memory_mib, :gpus)
        ON CONFLICT (tenant, region) DO UPDATE
       SET granted_cpu_millis = excluded.granted_cpu_millis,
           granted_memory_mib = excluded.granted_memory_mib,
           granted_gpus = excluded.granted_gpus
""")
_LOWER_HARD = text("""
    UPDATE global.quotas
       SET hard_cpu_millis = greatest(target_cpu_millis, granted_cpu_millis),
           hard_memory_mib = greatest(target_memory_mib, granted_memory_mib),
           hard_gpus = greatest(target_gpus, granted_gpus)
     WHERE tenant = :tenant
""")

# State of a transfer, whether the region gives, and whether it has done its half: the books still
# have what was taken from it, or have already what is to be added to it.
_LESS_THAN_BOOKS = {("requested", True, True), ("moved", False, False)}

Amounts = Mapping[TenantId, Resources]


async def follow_books(databases: Databases, region: RegionId, epoch: int, actor: ActorId) -> None:
    """Gives a region what the books say it has; again is harmless."""
    recorded = await _read_recorded(databases, region)
    has = await _read_granted(databases, region)
    target = await _read_books(databases, region, recorded)
    for tenant in has.keys() | target.keys():
        of, wanted = has.get(tenant, ZERO), target.get(tenant, ZERO)
        excess, lacking = of.excess_over(wanted), wanted.excess_over(of)
        name = f"restored/{epoch}/{tenant}/{region}"
        if not lacking.is_zero:
            await _add(databases, region, tenant, lacking, name)
        if not excess.is_zero:
            await _lapse(databases, region, tenant, excess, f"{name}/lapsed", actor)


async def follow_region(databases: Databases, region: RegionId) -> None:
    """Has books that went back say what the region has; again is harmless."""
    closed = await _close_transfers(databases, region)
    await _use_up(databases, region, closed)
    await _set_books(databases, region, await _read_granted(databases, region))


@regional_transaction("durable_reader", "read the grants of {region}")
async def _read_granted(connection: AsyncConnection, region: RegionId) -> Amounts:
    rows = (await connection.execute(_HAS, {"region": region})).mappings()
    return {TenantId(row["tenant"]): amount_of(row, "granted_") for row in rows}


@regional_transaction("durable_reader", "read the transfers of {region}")
async def _read_recorded(connection: AsyncConnection, region: RegionId) -> frozenset[str]:
    return frozenset((await connection.execute(_RECORDED, {"region": region})).scalars())


@global_transaction(ROLE, "read the books of {region}")
async def _read_books(
    connection: AsyncConnection, region: RegionId, recorded: frozenset[str]
) -> Amounts:
    """What the region must have for its open transfers to end as if nothing had happened."""
    rows = (await connection.execute(_BOOKS, {"region": region})).mappings()
    books = {TenantId(row["tenant"]): amount_of(row, "granted_") for row in rows}
    for row in (await connection.execute(_OPEN, {"region": region})).mappings():
        tenant, amount = TenantId(row["tenant"]), amount_of(row)
        state, gives, is_done = (
            row["state"],
            row["from_region"] == region,
            row["transfer"] in recorded,
        )
        if (state, gives, is_done) in _LESS_THAN_BOOKS:
            books[tenant] = books.get(tenant, ZERO) - amount
        elif state == "lapsed" and not is_done:
            books[tenant] = books.get(tenant, ZERO) + amount
    return books


@global_transaction(ROLE, "lapse what {region} has too much")
async def _lapse(
    connection: AsyncConnection,
    region: RegionId,
    tenant: TenantId,
    amount: Resources,
    transfer: str,
    actor: ActorId,
) -> None:
    of = {"transfer": transfer, "tenant": tenant, "region": region, "actor": actor}
    await connection.execute(_LAPSE, {**of, **amount_parameters(amount)})


@regional_transaction(ROLE, "give {region} what the books say")
async def _add(
    connection: AsyncConnection, region: RegionId, tenant: TenantId, amount: Resources, name: str
) -> None:
    await lock_region(connection, region)
    of = {"region": region, "tenant": tenant, "transfer": name, **amount_parameters(amount)}
    version = await advance_region(connection, region)
    if (await connection.execute(_RECORD, {**of, "version": version})).rowcount:
        await connection.execute(_ADD, of)


@global_transaction(ROLE, "close the transfers of {region}")
async def _close_transfers(connection: AsyncConnection, region: RegionId) -> Mapping[str, str]:
    """Answers the tenants of those that were open, by transfer."""
    rows = (await connection.execute(_OPEN, {"region": region})).mappings().all()
    transfers = {str(row["transfer"]): str(row["tenant"]) for row in rows}
    await connection.execute(_CLOSE, {"transfers": list(transfers)})
    return transfers


@regional_transaction(ROLE, "use up the transfers of {region}")
async def _use_up(
    connection: AsyncConnection, region: RegionId, transfers: Mapping[str, str]
) -> None:
    """A half of a closed transfer that comes late finds that it was done."""
    locked = await lock_region(connection, region)
    nothing: dict[str, Any] = {**amount_parameters(ZERO), "version": locked.version}
    for transfer, tenant in transfers.items():
        of = {"region": region, "tenant": tenant, "transfer": transfer}
        await connection.execute(_RECORD, {**of, **nothing})


@global_transaction(ROLE, "have the books say what {region} has")
async def _set_books(connection: AsyncConnection, region: RegionId, granted: Amounts) -> None:
    books = (await connection.execute(_BOOKS, {"region": region})).mappings()
    tenants = granted.keys() | {TenantId(row["tenant"]) for row in books}
    for tenant in sorted(tenants):
        amount = granted.get(tenant, ZERO)
        of = {"tenant": tenant, "region": region, **amount_parameters(amount)}
        await connection.execute(_TENANT, of)
        await connection.execute(_QUOTA, of)
        await connection.execute(_RAISE_HARD, of)
        await connection.execute(_SET_BOOKS, of)
        await connection.execute(_LOWER_HARD, of)
