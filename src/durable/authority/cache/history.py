"""A region as it was at an earlier version: what a decision saw, rebuilt long after."""

from sqlalchemy import text

from durable.authority.cache.region_read import node_of
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import unknown_region
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.scheduling.snapshot.region import NodeFacts

# What a node held at a version is what was claimed there by then and not yet freed.
_NODES_AT = text("""
    WITH claimed AS (
        SELECT node, sum(cpu_millis)::bigint AS used_cpu_millis,
               sum(memory_mib)::bigint AS used_memory_mib, sum(gpus)::bigint AS used_gpus
          FROM regional.reservations
         WHERE region = :region AND created_version <= :version
           AND (freed_version IS NULL OR freed_version > :version)
         GROUP BY node
    ), described AS (
        SELECT DISTINCT ON (node) node, attributes FROM regional.node_history
         WHERE region = :region AND version <= :version
         ORDER BY node, version DESC
    )
    SELECT attributes || jsonb_build_object(
               'node', node, 'lease_epoch', NULL, 'lease_expires_at', NULL,
               'used_cpu_millis', coalesce(used_cpu_millis, 0),
               'used_memory_mib', coalesce(used_memory_mib, 0),
               'used_gpus', coalesce(used_gpus, 0),
               'unhealthy_gpus', (
                   SELECT count(*)
                     FROM jsonb_array_elements_text(attributes -> 'unhealthy_devices') AS unhealthy
                    WHERE NOT EXISTS (
                          SELECT FROM regional.reservations AS r
                           WHERE r.region = :region AND r.node = described.node
                             AND unhealthy = ANY(r.devices) AND created_version <= :version
                             AND (freed_version IS NULL OR freed_version > :version)))) AS node
      FROM described LEFT JOIN claimed USING (node)
     WHERE attributes ->> 'state' <> 'removed' ORDER BY described.node
""")

_VERSION = text("SELECT version FROM regional.regions WHERE region = :region")


@regional_transaction("durable_reader", "rebuild {region} at version {version}")
async def read_nodes_at(
    connection: AsyncConnection, region: RegionId, version: int
) -> tuple[NodeFacts, ...]:
    """The nodes as they were when the region had this version, without leases."""
    await _refuse_unknown_version(connection, region, version)
    rows = await connection.execute(_NODES_AT, {"region": region, "version": version})
    return tuple(node_of(row.node) for row in rows)


async def _refuse_unknown_version(
    connection: AsyncConnection, region: RegionId, version: int
) -> None:
    newest = (await connection.execute(_VERSION, {"region": region})).scalar_one_or_none()
    if newest is None:
        raise unknown_region(region)
    if not 0 <= version <= newest:
        raise RefusedError(
            RefusalCode.UNKNOWN_VERSION,
            f"{region} has versions 0 to {newest}, not {version}; name one of those.",
        )
