"""What the quota controller does with transfers: top up, reclaim, and finish what was begun.

Who needs a top up is read off the region's queue: the slots that wait for nothing but grant.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.authority.quota.grants import GrantTransfer, is_taken, transfer_grant, unused_grant
from durable.authority.quota.quotas import amounts_of, read_quota
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.pending import PendingCode
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import ZERO, Resources
from durable.model.workload import WorkloadSpec

MAX_RESUMED = 1_000

_OPEN = text("""
    SELECT * FROM global.grant_transfers WHERE tenant = :tenant AND state <> 'settled'
     ORDER BY state = 'requested', requested_at LIMIT :most
""")


MOST_WAITING = 1_000

_WAITING = text("""
    SELECT tenant, waiting, spec FROM regional.requests
     WHERE region = :region AND state IN ('pending', 'timed_out')
       AND pending_reason LIKE ANY(:reasons)
     ORDER BY priority DESC, enqueued_at LIMIT :most
""")


async def read_needs(databases: Databases, region: RegionId) -> Mapping[TenantId, Resources]:
    """Who waits for grant here, and how much more that takes than the tenant has unused here.

    Nothing, for those who have enough by now and were not placed yet.
    """
    # A gang waits for all it is short of at once, which may be grant.
    reasons = [f"% ({code})" for code in (PendingCode.GRANT, PendingCode.GANG)]
    of = {"region": region, "reasons": reasons, "most": MOST_WAITING}

    async def work(connection: AsyncConnection) -> dict[TenantId, Resources]:
        waiting: dict[TenantId, Resources] = {}
        for row in await connection.execute(_WAITING, of):
            wanted = WorkloadSpec.model_validate(row.spec).resources * row.waiting
            waiting[row.tenant] = waiting.get(row.tenant, ZERO) + wanted
        return waiting

    engine = databases.at_region(region, "durable_reader")
    waiting = await transact(engine, work, doing=f"read who waits for grant in {region}")
    return {
        tenant: above(wanted, await unused_grant(databases, tenant, region))
        for tenant, wanted in waiting.items()
    }


async def resume_transfers(databases: Databases, tenant: TenantId) -> None:
    """Finishes every transfer of a tenant whose first half has happened; others were refused."""

    async def work(connection: AsyncConnection) -> list[GrantTransfer]:
        rows = await connection.execute(_OPEN, {"tenant": tenant, "most": MAX_RESUMED})
        return [
            GrantTransfer(
                id=row["transfer"],
                tenant=tenant,
                amount=amounts_of(row),
                from_region=row["from_region"] and RegionId(row["from_region"]),
                to_region=row["to_region"] and RegionId(row["to_region"]),
                actor=ActorId(row["actor"]),
            )
            for row in rows.mappings()
        ]

    engine = databases.at_global("durable_reader")
    for transfer in await transact(engine, work, doing=f"read the transfers of {tenant}"):
        if await is_taken(databases, transfer):
            await transfer_grant(databases, transfer)


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
    source that somebody else emptied in between gives nothing. Answers what arrived.
    """
    arrived = ZERO
    sources: list[RegionId | None] = [None, *(donor for donor in donors if donor != region)]
    ids = {source: f"{request}/{source or '(ungranted)'}" for source in dict.fromkeys(sources)}
    begun = await _begun(databases, list(ids.values()))
    for source, id in sorted(ids.items(), key=lambda item: item[1] not in begun):
        available = begun.get(id)
        if available is None:
            missing = above(amount, arrived)
            available = least(missing, await _available(databases, tenant, source))
        transfer = GrantTransfer(
            id=id, tenant=tenant, amount=available,
            from_region=source, to_region=region, actor=actor,
        )  # fmt: skip
        arrived = arrived + await _try(databases, transfer)
    return arrived


async def _available(databases: Databases, tenant: TenantId, source: RegionId | None) -> Resources:
    if source is not None:
        return await unused_grant(databases, tenant, source)
    quota = await read_quota(databases, tenant)
    return above(quota.target, quota.granted)


async def reclaim(
    databases: Databases,
    tenant: TenantId,
    regions: Sequence[RegionId],
    *,
    request: str,
    actor: ActorId,
) -> Resources:
    """Brings back the unused part of what a lowered quota granted too much; answers the rest.

    Each round is a request of its own: a request that is sent again brings nothing twice.
    """
    begun = await _begun(databases, [f"{request}/{region}" for region in regions])
    for region in regions:
        id = f"{request}/{region}"
        amount = begun.get(id)
        if amount is None:
            quota = await read_quota(databases, tenant)
            excess = above(quota.granted, quota.target)
            amount = least(excess, await unused_grant(databases, tenant, region))
        await _try(
            databases,
            GrantTransfer(id=id, tenant=tenant, amount=amount, from_region=region, actor=actor),
        )
    quota = await read_quota(databases, tenant)
    return above(quota.granted, quota.target)


_BEGUN = text("""
    SELECT transfer, cpu_millis, memory_mib, gpus FROM global.grant_transfers
     WHERE transfer = ANY(:transfers)
""")


async def _begun(databases: Databases, transfers: list[str]) -> dict[str, Resources]:
    """The amounts that an earlier send of the same request wrote down."""

    async def work(connection: AsyncConnection) -> dict[str, Resources]:
        rows = await connection.execute(_BEGUN, {"transfers": transfers})
        return {row["transfer"]: amounts_of(row) for row in rows.mappings()}

    engine = databases.at_global("durable_reader")
    return await transact(engine, work, doing="read the transfers of a request")


async def _try(databases: Databases, transfer: GrantTransfer) -> Resources:
    """What the transfer moved: nothing if what was available a moment ago is so no more."""
    if transfer.amount.is_zero:
        return ZERO
    try:
        await transfer_grant(databases, transfer)
    except RefusedError as error:
        if error.refusal.code in (RefusalCode.OVER_HARD_QUOTA, RefusalCode.GRANT_IN_USE):
            return ZERO
        raise
    return transfer.amount


def least(left: Resources, right: Resources) -> Resources:
    return Resources.of(*map(min, left.amounts, right.amounts))


def above(left: Resources, right: Resources) -> Resources:
    """How much `left` exceeds `right`, in each dimension."""
    return Resources.of(*(max(0, a - b) for a, b in zip(left.amounts, right.amounts, strict=True)))
