"""Grants lapse with the lease of their region, where they cannot be asked back.

A fenced region whose lease has lapsed takes nothing any more. What a tenant was granted there is
then of no use once its slots have gone to others: the books take it back without the
region, and other regions may be granted it. The region gives its half when it answers again, before
it is opened.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.quota.grants import GrantPart, take_lapsed
from durable.authority.quota.quotas import LOCK_QUOTA, ROLE, amount_of, amount_parameters
from durable.authority.quota.transfers import return_to_books, settle_books
from durable.authority.recovery.region_facts import hold_fact
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import Refusal, RefusedError
from durable.model.resources import Resources

# Not while the region may own a slot of the tenant, which would use it, nor while a transfer is on
# its way of which it is not known whether the region has done its half.
_LAPSING = """
    SELECT g.*
      FROM global.grants AS g
     WHERE g.region = :region
       AND (g.granted_cpu_millis, g.granted_memory_mib, g.granted_gpus) <> (0, 0, 0)
       AND NOT EXISTS (SELECT FROM global.slots AS s
                        WHERE s.tenant = g.tenant AND s.region = g.region)
       AND NOT EXISTS (SELECT FROM global.grant_transfers AS t
                        WHERE t.tenant = g.tenant AND t.state IN ('requested', 'moved')
                          AND g.region IN (t.from_region, t.to_region))
"""
_ALL_LAPSING = text(f"{_LAPSING} ORDER BY g.tenant")
_IS_LAPSING = text(f"{_LAPSING} AND g.tenant = :tenant")
_RECORD = text("""
    INSERT INTO global.grant_transfers
           (transfer, tenant, from_region, cpu_millis, memory_mib, gpus, protected_cpu_millis,
            protected_memory_mib, protected_gpus, state, actor, requested_at)
    VALUES (:transfer, :tenant, :region, :cpu_millis, :memory_mib, :gpus, :protected_cpu_millis,
            :protected_memory_mib, :protected_gpus, 'lapsed', :actor, clock_timestamp())
""")
_LAPSED = text("""
    SELECT * FROM global.grant_transfers WHERE from_region = :region AND state = 'lapsed'
     ORDER BY tenant
""")
_WHERE_LAPSED = text("""
    SELECT DISTINCT from_region FROM global.grant_transfers WHERE state = 'lapsed'
""")


async def lapse_grants(
    databases: Databases, region: RegionId, actor: ActorId
) -> Mapping[TenantId, Resources]:
    """Takes back what cannot be used in a region that cannot be reached; answers how much."""
    lapsed: dict[TenantId, Resources] = {}
    for tenant in await _read_lapsing(databases, region):
        amount = await _lapse(databases, region, tenant, actor)
        if amount is not None:
            lapsed[tenant] = amount
    return lapsed


async def settle_lapsed(databases: Databases, region: RegionId) -> None:
    """The region's half, once it answers; refused while something there uses what has lapsed."""
    for row in await _read_lapsed(databases, region):
        protected = amount_of(row, "protected_")
        part = GrantPart(TenantId(row["tenant"]), amount_of(row), protected, str(row["transfer"]))
        taken = await take_lapsed(databases, region, part)
        if isinstance(taken, Refusal):
            raise RefusedError(taken.code, taken.sentence)
        await settle_books(databases, part.transfer)


@global_transaction("durable_reader", "read where grants have lapsed")
async def lapsed_regions(connection: AsyncConnection) -> frozenset[RegionId]:
    """Regions that still have grant which the books took back: they have none to give."""
    return frozenset(RegionId(one) for one in (await connection.execute(_WHERE_LAPSED)).scalars())


@global_transaction("durable_reader", "read which grants of {region} lapse")
async def _read_lapsing(connection: AsyncConnection, region: RegionId) -> list[TenantId]:
    rows = await connection.execute(_ALL_LAPSING, {"region": region})
    return [TenantId(row.tenant) for row in rows]


@global_transaction(ROLE, "lapse the grant of {tenant} in {region}")
async def _lapse(
    connection: AsyncConnection, region: RegionId, tenant: TenantId, actor: ActorId
) -> Resources | None:
    await connection.execute(LOCK_QUOTA, {"tenant": tenant})
    # Held, so that the region is not opened with grant that the books have taken back.
    fact = await hold_fact(connection, region)
    of: dict[str, Any] = {"region": region, "tenant": tenant}
    row = (await connection.execute(_IS_LAPSING, of)).mappings().one_or_none()
    if not fact.is_movable or row is None:
        return None
    amount = amount_of(row, "granted_")
    protected = amount_of(row, "protected_")
    parameters = {**amount_parameters(amount), **amount_parameters(protected, "protected_")}
    change = {**of, **parameters}
    transfer = f"lapse/{tenant}/{region}/e{fact.epoch}"
    await connection.execute(_RECORD, {**change, "transfer": transfer, "actor": actor})
    await return_to_books(connection, tenant, region, parameters)
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action="lapse grant",
        target=f"tenant/{tenant}",
        before={"region": region, "amount": str(amount)},
        after={"epoch": fact.epoch, "lease_expired_at": str(fact.lease_expires_at)},
    )
    return amount


@global_transaction("durable_reader", "read what has lapsed in {region}")
async def _read_lapsed(connection: AsyncConnection, region: RegionId) -> list[dict[str, Any]]:
    rows = (await connection.execute(_LAPSED, {"region": region})).mappings()
    return [dict(row) for row in rows]
