"""Quota is escrow: a tenant's hard quota is split into grants, and grants move by transfer.

A transfer is four small transactions, each of which happens once by the transfer's id: write it
down, take from the giving region, move the global books, add to the receiving region. At every
point in between a region holds at most what the books say, and the books at most the hard quota.
"""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.connection import Databases, transact
from durable.authority.quota import (
    LOCK_QUOTA,
    amounts_of,
    named,
    read_quota,
    status_of,
    unknown_tenant,
)
from durable.authority.regions import advance_region, lock_region, read_region
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import ZERO, Resources
from durable.model.value import Value

ROLE = "durable_quota"


class GrantTransfer(Value):
    """Moves grant between regions; no region at one end means the tenant's ungranted rest."""

    id: str
    tenant: TenantId
    amount: Resources
    from_region: RegionId | None = None
    to_region: RegionId | None = None
    actor: ActorId


async def transfer_grant(databases: Databases, transfer: GrantTransfer) -> None:
    """Carries a transfer to its end; sent again after a crash, it goes on where it stopped.

    A refusal changes nothing, and the same transfer may be sent again later.
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
    if state == "requested":
        if transfer.from_region is not None:
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
        known = (await connection.execute(LOCK_QUOTA, {"tenant": transfer.tenant})).one_or_none()
        if known is None:
            raise unknown_tenant(transfer.tenant)
        await connection.execute(_WRITE_DOWN, {**asked, "actor": transfer.actor})
        found = await connection.execute(_LOCK_TRANSFER, {"transfer": transfer.id})
        row = found.mappings().one()
        if any(row[name] != value for name, value in asked.items()):
            raise RefusedError(
                RefusalCode.TRANSFER_CONFLICT,
                f"Transfer {transfer.id} was used before for something else; use a new id.",
            )
        return row["state"]

    engine = databases.at_global(ROLE)
    return await transact(engine, work, doing=f"begin transfer {transfer.id}")


async def _move_books(databases: Databases, transfer: GrantTransfer) -> None:
    """The giver's row down and the receiver's up; only ungranted quota can exceed the limit."""
    amount = {"tenant": transfer.tenant, **named(transfer.amount)}

    async def work(connection: AsyncConnection) -> None:
        quota = (await connection.execute(LOCK_QUOTA, amount)).mappings().one()
        row = await connection.execute(_LOCK_TRANSFER, {"transfer": transfer.id})
        if row.mappings().one()["state"] != "requested":
            return
        if transfer.from_region is not None:
            await connection.execute(_UNBOOK, {**amount, "region": transfer.from_region})
        else:
            status = status_of(transfer.tenant, quota)
            if not (status.granted + transfer.amount).fits_in(status.target):
                raise RefusedError(
                    RefusalCode.OVER_HARD_QUOTA,
                    f"The hard quota of {transfer.tenant} is {status.target} and {status.granted} "
                    f"is granted already, so {transfer.amount} more cannot be; raise the quota or "
                    "return a grant.",
                )
        if transfer.to_region is not None:
            await connection.execute(_BOOK, {**amount, "region": transfer.to_region})
        await connection.execute(_FOLLOW_DOWN, {"tenant": transfer.tenant})
        done = "settled" if transfer.to_region is None else "moved"
        await connection.execute(_SET_STATE, {"transfer": transfer.id, "state": done})

    engine = databases.at_global(ROLE)
    await transact(engine, work, doing=f"move the books of transfer {transfer.id}")


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
           (region, transfer, tenant, cpu_millis, memory_mib, gpus, at)
    VALUES (:region, :transfer, :tenant, :cpu_millis, :memory_mib, :gpus, clock_timestamp())
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
        await advance_region(connection, region)
        await connection.execute(_SHRINK, {**of, **named(transfer.amount)})
        await connection.execute(_APPLY, {**of, **named(transfer.amount)})

    engine = databases.at_region(region, ROLE)
    await transact(engine, work, doing=f"take grant from {region}")


async def _add(databases: Databases, transfer: GrantTransfer, region: RegionId) -> None:
    of = {"region": region, "transfer": transfer.id, "tenant": transfer.tenant}

    async def work(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        if (await connection.execute(_APPLIED, of)).one_or_none() is not None:
            return
        await advance_region(connection, region)
        await connection.execute(_GROW, {**of, **named(transfer.amount)})
        await connection.execute(_APPLY, {**of, **named(transfer.amount)})

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


async def top_up(
    databases: Databases,
    tenant: TenantId,
    region: RegionId,
    amount: Resources,
    *,
    donors: Sequence[RegionId],
    request: str,
    actor: ActorId,
) -> Resources:
    """Brings up to `amount` more grant to a region: ungranted quota first, then unused elsewhere.

    Each source is a transfer of its own, named after the request, so that sending the request
    again goes on with the same transfers. Answers what arrived.
    """
    arrived = ZERO
    sources: list[RegionId | None] = [None, *(donor for donor in donors if donor != region)]
    for source in sources:
        missing = amount - arrived
        if missing.is_zero:
            break
        if source is None:
            quota = await read_quota(databases, tenant)
            room = least(quota.granted, quota.target)
            available = least(missing, quota.target - room)
        else:
            available = least(missing, await unused_grant(databases, tenant, source))
        transfer = GrantTransfer(
            id=f"{request}/{source or 'ungranted'}",
            tenant=tenant,
            amount=available,
            from_region=source,
            to_region=region,
            actor=actor,
        )
        arrived = arrived + await _carry_on(databases, transfer)
    return arrived


async def reclaim(
    databases: Databases,
    tenant: TenantId,
    regions: Sequence[RegionId],
    *,
    request: str,
    actor: ActorId,
) -> Resources:
    """Brings back the unused part of what a lowered quota granted too much; answers the rest."""
    for region in regions:
        quota = await read_quota(databases, tenant)
        excess = above(quota.granted, quota.target)
        amount = least(excess, await unused_grant(databases, tenant, region))
        back = f"{request}/{region}"
        await _carry_on(
            databases,
            GrantTransfer(id=back, tenant=tenant, amount=amount, from_region=region, actor=actor),
        )
    quota = await read_quota(databases, tenant)
    return above(quota.granted, quota.target)


_READ_TRANSFER = text("""
    SELECT cpu_millis, memory_mib, gpus FROM global.grant_transfers WHERE transfer = :transfer
""")


async def _carry_on(databases: Databases, transfer: GrantTransfer) -> Resources:
    """Begins the transfer, or goes on with the amount that an earlier send wrote down."""

    async def work(connection: AsyncConnection) -> Resources | None:
        row = await connection.execute(_READ_TRANSFER, {"transfer": transfer.id})
        found = row.mappings().one_or_none()
        return None if found is None else amounts_of(found)

    engine = databases.at_global("durable_reader")
    begun = await transact(engine, work, doing=f"read transfer {transfer.id}")
    amount = transfer.amount if begun is None else begun
    if not amount.is_zero:
        await transfer_grant(databases, transfer.model_copy(update={"amount": amount}))
    return amount


def least(left: Resources, right: Resources) -> Resources:
    return Resources.of(*map(min, left.amounts, right.amounts))


def above(left: Resources, right: Resources) -> Resources:
    """How much `left` exceeds `right`, in each dimension."""
    return Resources.of(*(max(0, a - b) for a, b in zip(left.amounts, right.amounts, strict=True)))
