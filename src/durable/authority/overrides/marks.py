"""Marks claims where an override lets nothing be placed, so that their workloads replace them.

Once is enough: from this transaction on, the region's commits let nothing new go there. A claim
that is marked for another cause as well goes when either wants it gone.
"""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.model.ids import RegionId
from durable.model.overrides.in_force import RegionalOverride
from durable.model.overrides.override import Override
from durable.signals.names import override_id

_MARK = text("""
    WITH marked AS (
        INSERT INTO regional.replacements (region, token, cause, actor, reason, requested_at)
        SELECT r.region, r.token, :cause, :actor, :reason, clock_timestamp()
          FROM regional.reservations AS r JOIN regional.nodes AS n USING (region, node)
         WHERE r.region = :region AND r.freed_version IS NULL
           AND (CAST(:tenant AS text) IS NULL OR r.tenant = :tenant)
           AND (CAST(:workload AS text) IS NULL OR r.workload = :workload)
           AND (n.zone = ANY(:avoid_zones) OR n.node = ANY(:avoid_nodes)
                OR n.zone <> CAST(:only_zone AS text) OR n.node <> CAST(:only_node AS text))
            ON CONFLICT DO NOTHING
        RETURNING region, token
    )
    SELECT r.tenant, r.workload, r.generation
      FROM marked JOIN regional.reservations AS r USING (region, token)
""")

# A claim whose stop was requested ends with its mark; the others stay where they are.
_UNMARK = text("""
    DELETE FROM regional.replacements AS p
     USING regional.reservations AS r
      LEFT JOIN regional.bindings AS b ON b.region = r.region AND b.token = r.token
     WHERE p.region = :region AND p.cause = :cause
       AND r.region = p.region AND r.token = p.token AND b.stop_requested_at IS NULL
    RETURNING r.tenant, r.workload, r.generation
""")

Share = tuple[str, str, int]


async def mark_claims(
    connection: AsyncConnection, region: RegionId, override: RegionalOverride
) -> list[Share]:
    """The shares of the claims that were marked, one for each claim."""
    effects, scope = override.effects, override.scope
    rows = await connection.execute(
        _MARK,
        {
            "region": region,
            "cause": override_id(override.override),
            "actor": override.actor,
            "reason": override.reason[:500],
            "tenant": scope.tenant,
            "workload": scope.workload,
            "avoid_zones": list(map(str, effects.avoid_zones)),
            "avoid_nodes": list(map(str, effects.avoid_nodes)),
            "only_zone": effects.only_zone,
            "only_node": effects.only_node,
        },
    )
    return [(row.tenant, row.workload, row.generation) for row in rows]


async def unmark_claims(
    connection: AsyncConnection, region: RegionId, override: Override
) -> list[Share]:
    """Takes the marks back from claims that nobody has begun to stop."""
    of = {"region": region, "cause": override_id(override.id)}
    return [
        (row.tenant, row.workload, row.generation) for row in await connection.execute(_UNMARK, of)
    ]
