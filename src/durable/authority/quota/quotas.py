"""A tenant's hard quota, kept on the global side; transfers split it into regional grants."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.model.fleet.capacity import Quota
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import ZERO, Resources

ROLE = "durable_quota"


def amount_of(row: Any, prefix: str = "") -> Resources:
    """Three columns of a row as one amount."""
    names = (f"{prefix}cpu_millis", f"{prefix}memory_mib", f"{prefix}gpus")
    return Resources.of(*(row[name] for name in names))


def clipped_of(row: Any, prefix: str = "") -> Resources:
    """The same of columns that may be less than nothing."""
    names = (f"{prefix}cpu_millis", f"{prefix}memory_mib", f"{prefix}gpus")
    return Resources.of(*(max(0, row[name]) for name in names))


def amount_parameters(amount: Resources, prefix: str = "") -> dict[str, int]:
    """One amount as three parameters of a statement."""
    return {f"{prefix}{name}": value for name, value in amount.model_dump().items()}


_ADD_TENANT = text("""
    INSERT INTO global.tenants (tenant, created_at) VALUES (:tenant, clock_timestamp())
        ON CONFLICT DO NOTHING
""")

_ADD_QUOTA = text("INSERT INTO global.quotas (tenant) VALUES (:tenant) ON CONFLICT DO NOTHING")

_READ_QUOTA = text("SELECT * FROM global.quotas WHERE tenant = :tenant")

_BOOKED = text("SELECT * FROM global.grants WHERE region = ANY(:regions)")

LOCK_QUOTA = text("SELECT * FROM global.quotas WHERE tenant = :tenant FOR UPDATE")

# The limit in force follows the target down only as far as grants allow.
_SET_QUOTA = text("""
    UPDATE global.quotas
       SET target_cpu_millis = :cpu_millis, target_memory_mib = :memory_mib, target_gpus = :gpus,
           hard_cpu_millis = greatest(:cpu_millis, granted_cpu_millis),
           hard_memory_mib = greatest(:memory_mib, granted_memory_mib),
           hard_gpus = greatest(:gpus, granted_gpus),
           protected_cpu_millis = :protected_cpu_millis,
           protected_memory_mib = :protected_memory_mib, protected_gpus = :protected_gpus
     WHERE tenant = :tenant
    RETURNING *
""")


async def set_quota(
    databases: Databases,
    tenant: TenantId,
    *,
    hard: Resources,
    protected: Resources = ZERO,
    actor: ActorId,
) -> Quota:
    """Sets a tenant's hard quota; below what is granted it takes effect as grants come back."""
    if not protected.fits_in(hard):
        raise RefusedError(
            RefusalCode.OVER_HARD_QUOTA,
            f"Protected {protected} of {tenant} is more than its hard quota {hard}; lower it.",
        )
    return await _set(databases, tenant, hard, protected, actor)


@global_transaction(ROLE, "set the quota of {tenant}")
async def _set(
    connection: AsyncConnection,
    tenant: TenantId,
    hard: Resources,
    protected: Resources,
    actor: ActorId,
) -> Quota:
    await connection.execute(_ADD_TENANT, {"tenant": tenant})
    await connection.execute(_ADD_QUOTA, {"tenant": tenant})
    before = (await connection.execute(LOCK_QUOTA, {"tenant": tenant})).mappings().one()
    values = {
        "tenant": tenant,
        **amount_parameters(hard),
        **amount_parameters(protected, "protected_"),
    }
    after = (await connection.execute(_SET_QUOTA, values)).mappings().one()
    if dict(before) != dict(after):
        await audit.append(
            connection,
            audit.GLOBAL_CHAIN,
            actor=actor,
            action="set quota",
            target=f"tenant/{tenant}",
            before={"hard": str(amount_of(before, "target_"))},
            after={"hard": str(hard), "protected": str(protected)},
        )
    return quota_of(after)


@global_transaction("durable_reader", "read the quota of {tenant}")
async def read_quota(connection: AsyncConnection, tenant: TenantId) -> Quota:
    row = (await connection.execute(_READ_QUOTA, {"tenant": tenant})).mappings().one_or_none()
    if row is None:
        raise unknown_tenant(tenant)
    return quota_of(row)


@global_transaction("durable_reader", "read what regions were granted")
async def read_booked(
    connection: AsyncConnection, regions: Collection[RegionId]
) -> dict[RegionId, dict[TenantId, Resources]]:
    """By the global side's books, of regions that need not answer."""
    booked: dict[RegionId, dict[TenantId, Resources]] = {region: {} for region in regions}
    if not regions:
        return booked
    rows = await connection.execute(_BOOKED, {"regions": [str(region) for region in regions]})
    for row in rows.mappings():
        amount = amount_of(row, "granted_")
        booked[RegionId(row["region"])][TenantId(row["tenant"])] = amount
    return booked


def quota_of(row: Any) -> Quota:
    return Quota(
        tenant=TenantId(row["tenant"]),
        hard=amount_of(row, "hard_"),
        target=amount_of(row, "target_"),
        protected=amount_of(row, "protected_"),
        granted=amount_of(row, "granted_"),
    )


def unknown_tenant(tenant: TenantId) -> RefusedError:
    return RefusedError(
        RefusalCode.UNKNOWN_TENANT, f"There is no tenant {tenant}; see `durable fleet show`."
    )
