"""What there is, for people: regions with their nodes, tenants with their quotas and grants."""

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.connection import Databases, transact
from durable.authority.quota import amounts_of
from durable.model.resources import ZERO, Resources
from durable.model.value import Value


class BudgetCensus(Value):
    budget: str
    amount: Resources
    used: Resources
    expires_at: datetime
    incident: str | None


class PoolCensus(Value):
    pool: str
    zone: str
    nodes: int
    live: int
    cordoned: int
    capacity: Resources
    used: Resources


class RegionCensus(Value):
    region: str
    state: str
    epoch: int
    version: int
    capacity: Resources
    used: Resources
    pools: tuple[PoolCensus, ...]
    budgets: tuple[BudgetCensus, ...]


class GrantCensus(Value):
    region: str
    granted: Resources
    used: Resources
    protected: Resources


class TenantCensus(Value):
    tenant: str
    hard: Resources
    target: Resources
    protected: Resources
    granted: Resources
    grants: tuple[GrantCensus, ...]


class Census(Value):
    regions: tuple[RegionCensus, ...]
    tenants: tuple[TenantCensus, ...]


_REGIONS = text("SELECT * FROM regional.regions ORDER BY region")

_POOLS = text("""
    SELECT n.region, n.pool, n.zone, count(*) AS nodes,
           count(*) FILTER (WHERE l.expires_at > clock_timestamp()) AS live,
           count(*) FILTER (WHERE n.cordon_reason IS NOT NULL) AS cordoned,
           sum(n.capacity_cpu_millis)::bigint AS capacity_cpu_millis,
           sum(n.capacity_memory_mib)::bigint AS capacity_memory_mib,
           sum(n.capacity_gpus)::bigint AS capacity_gpus,
           sum(n.used_cpu_millis)::bigint AS used_cpu_millis,
           sum(n.used_memory_mib)::bigint AS used_memory_mib,
           sum(n.used_gpus)::bigint AS used_gpus
      FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
     WHERE n.state <> 'removed'
     GROUP BY n.region, n.pool, n.zone ORDER BY n.region, n.pool, n.zone
""")

_BUDGETS = text("SELECT * FROM regional.recovery_budgets ORDER BY region, budget")
_GRANTS = text("SELECT * FROM regional.grants ORDER BY tenant, region")
_QUOTAS = text("SELECT * FROM global.quotas ORDER BY tenant")


async def take_census(databases: Databases) -> Census:
    """Reads every database once; each is consistent in itself, not with the others."""
    regions: list[RegionCensus] = []
    grants: dict[str, list[GrantCensus]] = {}
    for url in databases.urls:

        async def regional(connection: AsyncConnection) -> None:
            regions.extend(await _regions(connection))
            for row in (await connection.execute(_GRANTS)).mappings():
                granted, used, protected = (
                    amounts_of(row, prefix) for prefix in ("granted_", "used_", "protected_")
                )
                grants.setdefault(row["tenant"], []).append(
                    GrantCensus(
                        region=row["region"], granted=granted, used=used, protected=protected
                    )
                )

        await transact(databases.at(url, "durable_reader"), regional, doing="read the regions")

    async def tenants(connection: AsyncConnection) -> tuple[TenantCensus, ...]:
        return tuple(
            TenantCensus(
                tenant=row["tenant"],
                hard=amounts_of(row, "hard_"),
                target=amounts_of(row, "target_"),
                protected=amounts_of(row, "protected_"),
                granted=amounts_of(row, "granted_"),
                grants=tuple(grants.get(row["tenant"], ())),
            )
            for row in (await connection.execute(_QUOTAS)).mappings()
        )

    engine = databases.at_global("durable_reader")
    return Census(
        regions=tuple(regions), tenants=await transact(engine, tenants, doing="read the tenants")
    )


async def _regions(connection: AsyncConnection) -> list[RegionCensus]:
    pools: dict[str, list[PoolCensus]] = {}
    for row in (await connection.execute(_POOLS)).mappings():
        pools.setdefault(row["region"], []).append(
            PoolCensus(
                pool=row["pool"],
                zone=row["zone"],
                nodes=row["nodes"],
                live=row["live"],
                cordoned=row["cordoned"],
                capacity=amounts_of(row, "capacity_"),
                used=amounts_of(row, "used_"),
            )
        )
    budgets: dict[str, list[BudgetCensus]] = {}
    for row in (await connection.execute(_BUDGETS)).mappings():
        budgets.setdefault(row["region"], []).append(
            BudgetCensus(
                budget=row["budget"],
                amount=amounts_of(row),
                used=amounts_of(row, "used_"),
                expires_at=row["expires_at"],
                incident=row["incident"],
            )
        )
    return [
        RegionCensus(
            region=row["region"],
            state=row["state"],
            epoch=row["epoch"],
            version=row["version"],
            capacity=amounts_of(row, "capacity_"),
            used=amounts_of(row, "used_"),
            pools=tuple(pools.get(row["region"], ())),
            budgets=tuple(budgets.get(row["region"], ())),
        )
        for row in (await connection.execute(_REGIONS)).mappings()
    ]


def used_by(tenant: TenantCensus) -> Resources:
    return sum((grant.used for grant in tenant.grants), start=ZERO)
