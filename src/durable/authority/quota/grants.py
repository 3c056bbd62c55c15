"""Quota is escrow: a tenant's hard quota is split into grants, and grants move by transfer.

A transfer is four small transactions, each of which happens once by the transfer's id: write it
down, take from the giving region, move the global books, add to the receiving region. Where no
region gives, the first and the third are one. At every point in between a region holds at most
what the books say, and the books at most the hard quota.
"""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.regions import advance_region, lock_region, read_region
from durable.authority.quota.quotas import (
    LOCK_QUOTA,
    amounts_of,
    named,
    quota_of,
    unknown_tenant,
)
from durable.model.capacity import Quota
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import ZERO, Resources
from durable.validation.text import PlainText
from durable.validation.value import Value

ROLE = "durable_quota"


class GrantTransfer(Value):
    """Moves grant between regions; no region at one end means the tenant's ungranted rest."""

    id: PlainText
    tenant: TenantId
    amount: Resources
    from_region: RegionId | None = None
    to_region: RegionId | None = None
    actor: ActorId


async def transfer_grant(databases: Databases, transfer: GrantTransfer) -> None:
    """Carries a transfer to its end; sent again after a crash, it goes on where it stopped.

    A refusal changes nothing, now or later: only sending the transfer again tries it again.
    """
    for region in (transfer.from_region, transfer.to_region):
        if region is not None:
            await read_region(databases, region)  # refuses an unknown one before anything moves
    if transfer.from_region == transfer.to_region:
        raise RefusedError(
            RefusalCode.TRANSFER_CONFLICT,
            f"Transfer {transfer.id} begins and ends at the same place; name two.",
        )
    state = await _write_down(databases, transfer)
    if state == "requested" and transfer.from_region is not None:
        await _take(databases, transfer, transfer.from_region)
        await _move_books(databases, transfer)
    if state != "settled" and transfer.to_region is not None:
        await _add(databases, transfer, transfer.to_region)
        await _settle(databases, transfer)


# ── the global half ─────────────────────────────────────────────────────────────────────────────

_WRITE_DOWN = text("""
    INSERT INTO global.grant_transfers
           (transfer, tenant, from_region, to_region, cpu_millis, memory_mib, gpus, state, actor,
            requested_at)
    VALUES (:transfer, :tenant, :from_region, :to_region, :cpu_millis, :memory_mib, :gpus,
            'requested', :actor, clock_timestamp())
        ON CONFLICT (transfer) DO NOTHING
""")

_LOCK_TRANSFER = text("SELECT * FROM global.grant_transfers WHERE transfer = :transfer FOR UPDATE")

_SET_STATE = text("""
    UPDATE global.grant_transfers
       SET state = CAST(:state AS text),
           settled_at = CASE WHEN CAST(:state AS text) = 'settled' THEN clock_timestamp() END
     WHERE transfer = :transfer
""")

_BOOK = text("""
    INSERT INTO global.grants AS g
           (tenant, region, granted_cpu_millis, granted_memory_mib, granted_gpus)
    VALUES (:tenant, :region, :cpu_millis, :memory_mib, :gpus)
        ON CONFLICT (tenant, region) DO UPDATE
       SET granted_cpu_millis = g.granted_cpu_millis + :cpu_millis,
           granted_memory_mib = g.granted_memory_mib + :memory_mib,
           granted_gpus = g.granted_gpus + :gpus
""")

_UNBOOK = text("""
    UPDATE global.grants
       SET granted_cpu_millis = granted_cpu_millis - :cpu_millis,
           granted_memory_mib = granted_memory_mib - :memory_mib,
           granted_gpus = granted_gpus - :gpus
     WHERE tenant = :tenant AND region = :region
""")

# A lowered quota follows its target down as grants come back.
_FOLLOW_DOWN = text("""
    UPDATE global.quotas
       SET hard_cpu_millis = greatest(target_cpu_millis, granted_cpu_millis),
           hard_memory_mib = greatest(target_memory_mib, granted_memory_mib),
           hard_gpus = greatest(target_gpus, granted_gpus)
     WHERE tenant = :tenant
""")


async def _write_down(databases: Databases, transfer: GrantTransfer) -> str:
    asked = {
        "transfer": transfer.id,
        "tenant": str(transfer.tenant),
        "from_region": transfer.from_region and str(transfer.from_region),
        "to_region": transfer.to_region and str(transfer.to_region),
        **named(transfer.amount),
    }

    async def work(connection: AsyncConnection) -> str:
        locked = await connection.execute(LOCK_QUOTA, {"tenant": transfer.tenant})
        quota = locked.mappings().one_or_none()
        if quota is None:
            raise unknown_tenant(transfer.tenant)
        if (await connection.execute(_WRITE_DOWN, {**asked, "actor": transfer.actor})).rowcount:
            await audit.append(
                connection,
                audit.GLOBAL_CHAIN,
                actor=transfer.actor,
                action="transfer grant",
                target=f"tenant/{transfer.tenant}",
                before={"region": transfer.from_region},
                after={"region": transfer.to_region, "amount": str(transfer.amount)},
            )
        found = await connection.execute(_LOCK_TRANSFER, {"transfer": transfer.id})
        row = found.mappings().one()
        if any(row[name] != value for name, value in asked.items()):
            raise RefusedError(
                RefusalCode.TRANSFER_CONFLICT,
                f"Transfer {transfer.id} was used before for something else; use a new id.",
            )
        if row["state"] == "requested" and transfer.from_region is None:
            # In one transaction, so that a refusal leaves no amount behind for the next send.
            _refuse_over_target(transfer, quota_of(quota))
            return await _move(connection, transfer)
        return row["state"]

    engine = databases.at_global(ROLE)
    return await transact(engine, work, doing=f"begin transfer {transfer.id}")


def _refuse_over_target(transfer: GrantTransfer, quota: Quota) -> None:
    if not (quota.granted + transfer.amount).fits_in(quota.target):
        raise RefusedError(
            RefusalCode.OVER_HARD_QUOTA,
            f"The hard quota of {transfer.tenant} is {quota.target} and {quota.granted} is granted "
            f"already, so {transfer.amount} more cannot be; raise the quota or return a grant.",
        )


async def _move_books(databases: Databases, transfer: GrantTransfer) -> None:
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(LOCK_QUOTA, {"tenant": transfer.tenant})
        row = await connection.execute(_LOCK_TRANSFER, {"transfer": transfer.id})
        if row.mappings().one()["state"] == "requested":
            await _move(connection, transfer)

    engine = databases.at_global(ROLE)
    await transact(engine, work, doing=f"move the books of transfer {transfer.id}")


async def _move(connection: AsyncConnection, transfer: GrantTransfer) -> str:
    """The giver's row down and the receiver's up, under the locks of quota and transfer."""
    amount = {"tenant": transfer.tenant, **named(transfer.amount)}
    if transfer.from_region is not None:
        await connection.execute(_UNBOOK, {**amount, "region": transfer.from_region})
    if transfer.to_region is not None:
        await connection.execute(_BOOK, {**amount, "region": transfer.to_region})
    await connection.execute(_FOLLOW_DOWN, {"tenant": transfer.tenant})
    state = "settled" if transfer.to_region is None else "moved"
    await connection.execute(_SET_STATE, {"transfer": transfer.id, "state": state})
    return state


async def _settle(databases: Databases, transfer: GrantTransfer) -> None:
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(_SET_STATE, {"transfer": transfer.id, "state": "settled"})

    await transact(databases.at_global(ROLE), work, doing=f"settle transfer {transfer.id}")


# ── the regional halves ─────────────────────────────────────────────────────────────────────────

_APPLIED = text("""
    SELECT FROM regional.grant_changes WHERE region = :region AND transfer = :transfer
""")

_GRANT = text("SELECT * FROM regional.grants WHERE region = :region AND tenant = :tenant")

_GROW = text("""
    INSERT INTO regional.grants AS g
           (region, tenant, granted_cpu_millis, granted_memory_mib, granted_gpus)
    VALUES (:region, :tenant, :cpu_millis, :memory_mib, :gpus)
        ON CONFLICT (region, tenant) DO UPDATE
       SET granted_cpu_millis = g.granted_cpu_millis + :cpu_millis,
           granted_memory_mib = g.granted_memory_mib + :memory_mib,
           granted_gpus = g.granted_gpus + :gpus
""")

_SHRINK = text("""
    UPDATE regional.grants
       SET granted_cpu_millis = granted_cpu_millis - :cpu_millis,
           granted_memory_mib = granted_memory_mib - :memory_mib,
           granted_gpus = granted_gpus - :gpus,
           protected_cpu_millis = least(protected_cpu_millis, granted_cpu_millis - :cpu_millis),
           protected_memory_mib = least(protected_memory_mib, granted_memory_mib - :memory_mib),
           protected_gpus = least(protected_gpus, granted_gpus - :gpus)
     WHERE region = :region AND tenant = :tenant
""")

_APPLY = text("""
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


async def _take(databases: Databases, transfer: GrantTransfer, region: RegionId) -> None:
    of = {"region": region, "transfer": transfer.id, "tenant": transfer.tenant}

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        if (await connection.execute(_APPLIED, of)).one_or_none() is not None:
            return
        row = (await connection.execute(_GRANT, of)).mappings().one_or_none()
        unused = ZERO if row is None else amounts_of(row, "granted_") - amounts_of(row, "used_")
        if not transfer.amount.fits_in(unused):
            raise RefusedError(
                RefusalCode.GRANT_IN_USE,
                f"{region} has {unused} of {transfer.tenant}'s grant unused and "
                f"{transfer.amount} was asked back; ask for less or wait for usage to fall.",
            )
        version = await advance_region(connection, region)
        change = {**of, **named(transfer.amount), "version": version, "sign": -1}
        await connection.execute(_SHRINK, change)
        await connection.execute(_APPLY, change)

    engine = databases.at_region(region, ROLE)
    await transact(engine, work, doing=f"take grant from {region}")


async def _add(databases: Databases, transfer: GrantTransfer, region: RegionId) -> None:
    of = {"region": region, "transfer": transfer.id, "tenant": transfer.tenant}

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        if (await connection.execute(_APPLIED, of)).one_or_none() is not None:
            return
        version = await advance_region(connection, region)
        change = {**of, **named(transfer.amount), "version": version, "sign": 1}
        await connection.execute(_GROW, change)
        await connection.execute(_APPLY, change)

    engine = databases.at_region(region, ROLE)
    await transact(engine, work, doing=f"add grant to {region}")


# ── what the quota controller does with transfers ───────────────────────────────────────────────


async def protect(
    databases: Databases, tenant: TenantId, region: RegionId, amount: Resources
) -> None:
    """Marks part of a region's grant as capacity that preemption never takes."""

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        of = {"region": region, "tenant": tenant, **named(amount)}
        if (await connection.execute(_PROTECT, of)).one_or_none() is None:
            raise unknown_tenant(tenant)

    engine = databases.at_region(region, ROLE)
    await transact(engine, work, doing=f"protect {tenant} in {region}")


async def unused_grant(databases: Databases, tenant: TenantId, region: RegionId) -> Resources:
    async def work(connection: AsyncConnection) -> Resources:
        row = await connection.execute(_GRANT, {"region": region, "tenant": tenant})
        found = row.mappings().one_or_none()
        return ZERO if found is None else amounts_of(found, "granted_") - amounts_of(found, "used_")

    engine = databases.at_region(region, "durable_reader")
    return await transact(engine, work, doing=f"read the grant of {tenant} in {region}")


async def is_taken(databases: Databases, transfer: GrantTransfer) -> bool:
    """Whether the giving region's half of a transfer has happened."""
    if transfer.from_region is None:
        return True
    of = {"region": transfer.from_region, "transfer": transfer.id}

    async def work(connection: AsyncConnection) -> bool:
        return (await connection.execute(_APPLIED, of)).one_or_none() is not None

    engine = databases.at_region(transfer.from_region, "durable_reader")
    return await transact(engine, work, doing=f"read transfer {transfer.id}")
