"""What the quota controller does with transfers: top up, reclaim, and finish what was begun.

Which tenants need a top-up is read from the region's queue: the slots that wait only for grant.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.quota.grants import owe_grant, read_grant_left
from durable.authority.quota.quotas import amount_of, read_quota
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.placement.pending_reasons import PendingCode
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import ZERO, Resources
from durable.validation.quantities import MAX_QUANTITY

MAX_RESUMED = 1_000

_OPEN = text("""
    SELECT * FROM global.grant_transfers WHERE tenant = :tenant AND state IN ('requested', 'moved')
     ORDER BY state = 'requested', requested_at LIMIT :most
""")

# Summed up here, so that no tenant is out of sight behind what others have waiting.
_WAITING = text("""
    SELECT tenant,
           least(sum(waiting * (spec -> 'resources' ->> 'cpu_millis')::numeric), :most)::bigint
               AS cpu_millis,
           least(sum(waiting * (spec -> 'resources' ->> 'memory_mib')::numeric), :most)::bigint
               AS memory_mib,
           least(sum(waiting * (spec -> 'resources' ->> 'gpus')::numeric), :most)::bigint AS gpus
      FROM regional.requests
     WHERE region = :region AND state IN ('pending', 'timed_out')
       AND pending_code = ANY(:codes)
     GROUP BY tenant
""")

_BEGUN = text("""
    SELECT transfer, cpu_millis, memory_mib, gpus FROM global.grant_transfers
     WHERE transfer = ANY(:transfers)
""")


async def read_needs(databases: Databases, region: RegionId) -> Mapping[TenantId, Resources]:
    """Which tenants wait for grant here, and how much more than their free grant they need.

    A tenant that has enough by now, and whose work is only not placed yet, needs nothing.
    """
    waiting = await _read_waiting(databases, region)
    return {
        tenant: needed.excess_over((await read_grant_left(databases, region, tenant)).free)
        for tenant, needed in waiting.items()
    }


@regional_transaction("durable_reader", "read which tenants wait for grant in {region}")
async def _read_waiting(
    connection: AsyncConnection, region: RegionId
) -> Mapping[TenantId, Resources]:
    # A gang waits for everything it lacks at once, which may include grant.
    codes = [PendingCode.GRANT.value, PendingCode.GANG.value]
    rows = await connection.execute(
        _WAITING, {"region": region, "codes": codes, "most": MAX_QUANTITY}
    )
    return {TenantId(row["tenant"]): amount_of(row) for row in rows.mappings()}


async def resume_transfers(databases: Databases, tenant: TenantId) -> None:
    """Carries every open transfer of a tenant to its end, but for regions that do not answer."""
    for transfer in await _read_open(databases, tenant):
        # One whose region is away stays open; one that is refused now has ended.
        with suppress(AuthorityUnreachableError, RefusedError):
            await transfer_grant(databases, transfer)


@global_transaction("durable_reader", "read the transfers of {tenant}")
async def _read_open(connection: AsyncConnection, tenant: TenantId) -> list[GrantTransfer]:
    rows = await connection.execute(_OPEN, {"tenant": tenant, "most": MAX_RESUMED})
    return [
        GrantTransfer(
            id=row["transfer"],
            tenant=tenant,
            amount=amount_of(row),
            protected=amount_of(row, "protected_"),
            from_region=row["from_region"] and RegionId(row["from_region"]),
            to_region=row["to_region"] and RegionId(row["to_region"]),
            actor=ActorId(row["actor"]),
        )
        for row in rows.mappings()
    ]


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

    Each source is a transfer of its own, named after the request. Sent again with the same donors,
    the request first finishes the transfers it had begun and then brings what is still missing. A
    source that was emptied in between gives nothing. Answers what arrived.
    """
    arrived = ZERO
    sources: list[RegionId | None] = [None, *(donor for donor in donors if donor != region)]
    ids = {source: f"{request}/{source or '(ungranted)'}" for source in dict.fromkeys(sources)}
    begun = await _read_begun(databases, list(ids.values()))
    for source, id in sorted(ids.items(), key=lambda item: item[1] not in begun):
        available = begun.get(id)
        if available is None:
            missing = amount.excess_over(arrived)
            available = missing.lower_of(await _available(databases, tenant, source))
        transfer = GrantTransfer(
            id=id, tenant=tenant, amount=available,
            from_region=source, to_region=region, actor=actor,
        )  # fmt: skip
        arrived = arrived + await _try(databases, transfer)
    return arrived


async def _available(databases: Databases, tenant: TenantId, source: RegionId | None) -> Resources:
    if source is not None:
        return (await read_grant_left(databases, source, tenant)).free
    quota = await read_quota(databases, tenant)
    return quota.target.excess_over(quota.granted)


async def reclaim(
    databases: Databases,
    tenant: TenantId,
    regions: Sequence[RegionId],
    *,
    request: str,
    actor: ActorId,
) -> Resources:
    """Brings back the unused part of what exceeds a lowered quota; answers what still exceeds it.

    Each round is a request of its own: a request that is sent again brings nothing twice.
    """
    begun = await _read_begun(databases, [f"{request}/{region}" for region in regions])
    for region in regions:
        id = f"{request}/{region}"
        amount = begun.get(id)
        if amount is None:
            quota = await read_quota(databases, tenant)
            excess = quota.granted.excess_over(quota.target)
            amount = excess.lower_of((await read_grant_left(databases, region, tenant)).rest)
        await _try(
            databases,
            GrantTransfer(id=id, tenant=tenant, amount=amount, from_region=region, actor=actor),
        )
    quota = await read_quota(databases, tenant)
    return quota.granted.excess_over(quota.target)


async def owe_excess(
    databases: Databases, tenant: TenantId, regions: Sequence[RegionId], excess: Resources
) -> None:
    """Has the regions keep what exceeds a lowered quota from new work, each in proportion."""
    granted = await _read_granted(databases, tenant)
    held = {region: granted.get(region, ZERO) for region in regions}
    total = sum(held.values(), start=ZERO)
    for region, part in held.items():
        owed = (
            -(-lacks * has // all) if all else 0
            for lacks, has, all in zip(excess.amounts, part.amounts, total.amounts, strict=True)
        )
        if not part.is_zero:
            await owe_grant(databases, region, tenant, Resources.of(*owed))


_LOWERED = text("""
    SELECT q.tenant FROM global.quotas AS q
     WHERE q.granted_cpu_millis > q.target_cpu_millis
        OR q.granted_memory_mib > q.target_memory_mib OR q.granted_gpus > q.target_gpus
     ORDER BY q.tenant
""")

_OWING = text("""
    SELECT tenant FROM regional.grants
     WHERE region = :region AND (owed_cpu_millis, owed_memory_mib, owed_gpus) <> (0, 0, 0)
""")

_GRANTED = text("SELECT * FROM global.grants WHERE tenant = :tenant")


@global_transaction("durable_reader", "read which quotas were lowered")
async def read_lowered(connection: AsyncConnection) -> list[TenantId]:
    """The tenants that were granted more than their quota is to be."""
    return [TenantId(tenant) for tenant in (await connection.execute(_LOWERED)).scalars()]


@regional_transaction("durable_reader", "read who owes grant in {region}")
async def read_owing(connection: AsyncConnection, region: RegionId) -> list[TenantId]:
    """The tenants of whose grant the region keeps some for a lowered quota."""
    owing = await connection.execute(_OWING, {"region": region})
    return [TenantId(tenant) for tenant in owing.scalars()]


@global_transaction("durable_reader", "read the grants of {tenant}")
async def _read_granted(connection: AsyncConnection, tenant: TenantId) -> dict[RegionId, Resources]:
    rows = await connection.execute(_GRANTED, {"tenant": tenant})
    return {RegionId(row["region"]): amount_of(row, "granted_") for row in rows.mappings()}


@global_transaction("durable_reader", "read the transfers of a request")
async def _read_begun(connection: AsyncConnection, transfers: list[str]) -> dict[str, Resources]:
    """The amounts that an earlier send of the same request wrote down."""
    rows = await connection.execute(_BEGUN, {"transfers": transfers})
    return {row["transfer"]: amount_of(row) for row in rows.mappings()}


async def _try(databases: Databases, transfer: GrantTransfer) -> Resources:
    """What the transfer moved: nothing if its source was emptied a moment ago."""
    if transfer.amount.is_zero:
        return ZERO
    try:
        await transfer_grant(databases, transfer)
    except RefusedError as error:
        if error.refusal.code in (RefusalCode.OVER_HARD_QUOTA, RefusalCode.GRANT_IN_USE):
            return ZERO
        raise
    return transfer.amount
