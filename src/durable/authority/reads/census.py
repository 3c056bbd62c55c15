"""What the authority manages: regions with their nodes, tenants with their quotas and grants."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field
from sqlalchemy import text

from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import ask_databases
from durable.authority.quota.budgets import budget_of
from durable.authority.quota.quotas import amount_of, clipped_of, quota_of
from durable.model.fleet.capacity import Grant, Quota, RecoveryBudget, RegionStatus
from durable.model.ids import PoolId, RegionId, TenantId, ZoneId
from durable.model.resources import ZERO, Resources
from durable.model.states import RegionState
from durable.validation.value import Value


class PoolCensus(Value):
    pool: PoolId
    zone: ZoneId
    nodes: int
    live: int
    cordoned: int
    capacity: Resources
    used: Resources


class RegionCensus(Value):
    region: RegionStatus
    capacity: Resources
    used: Resources
    pools: tuple[PoolCensus, ...]
    budgets: tuple[RecoveryBudget, ...]


class TenantCensus(Value):
    quota: Quota
    grants: tuple[Grant, ...]

    @property
    def used(self) -> Resources:
        """Also on emergency quotas."""
        return sum((grant.used + grant.beside for grant in self.grants), start=ZERO)


class Census(Value):
    regions: tuple[RegionCensus, ...]
    tenants: tuple[TenantCensus, ...]
    # Regions that did not answer, and why; what they hold is in none of the sums.
    unreachable: Mapping[RegionId, str] = Field(default={})


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
_GRANTS = text("""
    SELECT g.*, e.*
      FROM regional.free_grants(statement_timestamp()) AS g
     CROSS JOIN LATERAL (
           SELECT coalesce(sum(used_cpu_millis), 0)::bigint AS beside_cpu_millis,
                  coalesce(sum(used_memory_mib), 0)::bigint AS beside_memory_mib,
                  coalesce(sum(used_gpus), 0)::bigint AS beside_gpus
             FROM regional.emergency_draws
            WHERE region = g.region AND tenant = g.tenant) AS e
     ORDER BY g.tenant, g.region
""")
_QUOTAS = text("SELECT * FROM global.quotas ORDER BY tenant")


async def take_census(databases: Databases) -> Census:
    """Reads every database once; each is consistent in itself, not with the others."""

    async def read(url: str) -> tuple[list[RegionCensus], list[Grant]]:
        engine = databases.at(url, "durable_reader")
        regions = await transact(engine, _read_regions, doing="read the regions")
        return regions, await transact(engine, _read_grants, doing="read the grants")

    found, missing = await ask_databases(databases, read)
    engine = databases.at_global("durable_reader")
    quotas = await transact(engine, _read_quotas, doing="read the quotas")
    tenants = (
        TenantCensus(
            quota=quota,
            grants=tuple(g for _, grants in found for g in grants if g.tenant == quota.tenant),
        )
        for quota in quotas
    )
    return Census(
        regions=tuple(region for regions, _ in found for region in regions),
        tenants=tuple(tenants),
        unreachable=missing,
    )


async def _read_quotas(connection: AsyncConnection) -> list[Quota]:
    return [quota_of(row) for row in (await connection.execute(_QUOTAS)).mappings()]


async def _read_grants(connection: AsyncConnection) -> list[Grant]:
    return [
        Grant(
            region=RegionId(row["region"]),
            tenant=TenantId(row["tenant"]),
            granted=amount_of(row, "granted_"),
            used=amount_of(row, "used_"),
            protected=amount_of(row, "protected_"),
            free=clipped_of(row, "free_"),
            beside=amount_of(row, "beside_"),
        )
        for row in (await connection.execute(_GRANTS)).mappings()
    ]


async def _read_regions(connection: AsyncConnection) -> list[RegionCensus]:
    pools = (await connection.execute(_POOLS)).mappings().all()
    budgets = (await connection.execute(_BUDGETS)).mappings().all()
    return [
        RegionCensus(
            region=RegionStatus(
                region=RegionId(row["region"]),
                epoch=row["epoch"],
                version=row["version"],
                state=RegionState(row["state"]),
            ),
            capacity=amount_of(row, "capacity_"),
            used=amount_of(row, "used_"),
            pools=tuple(_pool(pool) for pool in _of(row["region"], pools)),
            budgets=tuple(budget_of(budget) for budget in _of(row["region"], budgets)),
        )
        for row in (await connection.execute(_REGIONS)).mappings()
    ]


def _of(region: str, rows: Iterable[Any]) -> Iterable[Any]:
    return (row for row in rows if row["region"] == region)


def _pool(row: Any) -> PoolCensus:
    return PoolCensus(
        pool=PoolId(row["pool"]),
        zone=ZoneId(row["zone"]),
        nodes=row["nodes"],
        live=row["live"],
        cordoned=row["cordoned"],
        capacity=amount_of(row, "capacity_"),
        used=amount_of(row, "used_"),
    )
