"""What the authority shows of a region: which of its nodes renew their leases, by zone and host."""

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.model.ids import NodeId, RegionId, ZoneId
from durable.model.recovery.detection import ZoneSigns
from durable.validation.value import Value

SILENT_SHOWN = 20

# By the region's own clock, which also decides the leases.
_LEASES = """
      FROM regional.nodes AS n JOIN regional.node_leases AS l USING (region, node)
     CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
     WHERE n.region = :region AND n.state <> 'removed'
       AND l.expires_at > clock.now - make_interval(secs => :since_seconds)
"""
_ZONES = text(f"""
    SELECT n.zone, count(*) FILTER (WHERE l.expires_at > clock.now) AS live,
           count(*) FILTER (WHERE l.expires_at <= clock.now) AS lapsed
    {_LEASES} GROUP BY n.zone ORDER BY n.zone
""")
_HOSTS = text(f"""
    SELECT count(*) AS hosts, count(*) FILTER (WHERE NOT is_live) AS silent,
           min(silent_for)::float8 AS silent_seconds
      FROM (SELECT l.host, bool_or(l.expires_at > clock.now) AS is_live,
                   min(extract(epoch FROM clock.now - l.renewed_at))
                       FILTER (WHERE l.expires_at <= clock.now) AS silent_for
            {_LEASES} GROUP BY l.host) AS host
""")
_SILENT = text(f"""
    SELECT n.node {_LEASES} AND l.expires_at <= clock.now ORDER BY l.expires_at, n.node LIMIT :most
""")


class NodeSigns(Value):
    """The nodes of one region that had a lease lately."""

    zones: tuple[ZoneSigns, ...]
    silent_nodes: tuple[NodeId, ...]
    hosts: int
    silent_hosts: int
    # How long ago one of those whose lease has lapsed was last heard of.
    silent_seconds: float | None = None


@regional_transaction("durable_reader", "read the leases of {region}")
async def read_node_signs(
    connection: AsyncConnection, region: RegionId, since_seconds: float
) -> NodeSigns:
    """Nodes whose lease lasts, or lasted within so many seconds."""
    asked = {"region": region, "since_seconds": since_seconds}
    zones = (await connection.execute(_ZONES, asked)).all()
    hosts = (await connection.execute(_HOSTS, asked)).one()
    silent = await connection.execute(_SILENT, {**asked, "most": SILENT_SHOWN})
    return NodeSigns(
        zones=tuple(
            ZoneSigns(zone=ZoneId(row.zone), live=row.live, lapsed=row.lapsed) for row in zones
        ),
        silent_nodes=tuple(NodeId(name) for name in silent.scalars()),
        hosts=hosts.hosts,
        silent_hosts=hosts.silent,
        silent_seconds=hosts.silent_seconds,
    )
