"""What overrides do in a region so far."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import OverrideId, RegionId
from durable.model.resources import Amounts

# Of those that have ended, what still runs on their draw or budget.
_EFFECTS = text("""
    SELECT o.override, o.number, o.ended_at IS NULL AS is_obeyed, o.marked,
           given.cpu_millis, given.memory_mib, given.gpus,
           given.used_cpu_millis, given.used_memory_mib, given.used_gpus,
           (SELECT count(*) FROM regional.replacements AS p
             WHERE p.region = o.region AND p.kind = 'override' AND p.cause = o.override
           ) AS left_to_move,
           (SELECT coalesce(sum(q.waiting), 0) FROM regional.requests AS q
             WHERE o.effects @> '{"holds": true}' AND q.region = o.region
               AND q.tenant = o.scope ->> 'tenant' AND q.workload = o.scope ->> 'workload'
               AND q.pending_code = 'held') AS held_back
      FROM regional.overrides AS o
      LEFT JOIN (SELECT region, override, cpu_millis, memory_mib, gpus,
                        used_cpu_millis, used_memory_mib, used_gpus
                   FROM regional.emergency_draws
                  UNION ALL
                 SELECT region, override, cpu_millis, memory_mib, gpus,
                        used_cpu_millis, used_memory_mib, used_gpus
                   FROM regional.recovery_budgets WHERE override IS NOT NULL
                ) AS given USING (region, override)
     WHERE o.region = :region
       AND (o.ended_at IS NULL
            OR given.used_cpu_millis + given.used_memory_mib + given.used_gpus > 0)
     ORDER BY o.override
""")

_OBEYED = text("""
    SELECT override FROM regional.overrides WHERE region = :region AND ended_at IS NULL
""")


@dataclass(frozen=True)
class RegionalEffect:
    """What one override has done in one region."""

    is_obeyed: bool
    # How many claims had to be replaced because of it, and how many of those still have to.
    marked: int
    left_to_move: int
    # How many replicas wait because of it.
    held_back: int = 0
    # Of an emergency quota or a recovery budget: how much it is, and how much is in use.
    draw: Amounts | None = None
    used: Amounts | None = None


def drawn_on(effects: Iterable[Mapping[OverrideId, RegionalEffect]]) -> set[OverrideId]:
    """On which of them something runs in some region, also after their end: it is over quota."""
    return {
        name
        for region in effects
        for name, effect in region.items()
        if effect.used is not None and any(effect.used)
    }


@regional_transaction("durable_reader", "read what overrides do in {region}")
async def read_effects(
    connection: AsyncConnection, region: RegionId
) -> dict[OverrideId, RegionalEffect]:
    """By override: of those that the region obeys, or that something still runs on."""
    rows = await connection.execute(_EFFECTS, {"region": region})
    return {
        OverrideId(row.override): RegionalEffect(
            is_obeyed=row.is_obeyed,
            marked=row.marked,
            left_to_move=row.left_to_move,
            held_back=row.held_back,
            draw=None if row.gpus is None else (row.cpu_millis, row.memory_mib, row.gpus),
            used=(
                None
                if row.gpus is None
                else (row.used_cpu_millis, row.used_memory_mib, row.used_gpus)
            ),
        )
        for row in rows
    }


@regional_transaction("durable_reader", "read which overrides {region} obeys")
async def obeyed_overrides(connection: AsyncConnection, region: RegionId) -> list[OverrideId]:
    """Those of whose end the region does not know."""
    rows = await connection.execute(_OBEYED, {"region": region})
    return [OverrideId(row.override) for row in rows]
