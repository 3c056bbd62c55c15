"""How nodes live, by their leases: ready, then unknown when one lapses, then lost.

What is lost no longer counts as capacity of its region. One that registers again is ready at once;
a lease that was renewed at the last moment is found by the next look.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.ids import ActorId, NodeId, RegionId
from durable.model.states import NodeState

ACTOR = ActorId("controller:node-life")
MAX_NAMED = 100

# A node that lives at an older epoch is its agent's to register; until then it stays what it is.
_JUDGED = """
    SELECT n.node, n.state AS was, CASE
           WHEN l.expires_at > moment.now
           THEN CASE WHEN l.epoch = r.epoch THEN 'ready' ELSE n.state END
           WHEN n.state = 'ready' THEN 'unknown'
           WHEN n.state = 'unknown' AND l.expires_at <= moment.now - make_interval(secs => :grace)
           THEN 'lost'
           ELSE n.state END AS state
      FROM regional.nodes AS n
      JOIN regional.regions AS r USING (region)
     CROSS JOIN (SELECT coalesce(CAST(:now AS timestamptz), clock_timestamp()) AS now) AS moment
      LEFT JOIN regional.node_leases AS l USING (region, node)
     WHERE n.region = :region AND n.state <> 'removed'
"""
_IS_ANY_DUE = text(f"SELECT EXISTS (SELECT FROM ({_JUDGED}) AS judged WHERE state <> was)")
_MOVE = text(f"""
    UPDATE regional.nodes AS n SET state = judged.state, changed_version = :version
      FROM ({_JUDGED}) AS judged
     WHERE n.region = :region AND n.node = judged.node AND judged.state <> judged.was
    RETURNING n.node, n.state
""")


@dataclass(frozen=True)
class NodeMoves:
    """The nodes that are something else now than at the last look."""

    ready: Sequence[NodeId] = ()
    unknown: Sequence[NodeId] = ()
    lost: Sequence[NodeId] = ()


@regional_transaction("durable_node_life", "judge the nodes of {region}")
async def judge_nodes(
    connection: AsyncConnection,
    region: RegionId,
    *,
    grace_seconds: float,
    now: datetime | None = None,
) -> NodeMoves:
    """Moves every node to what its lease says; one is lost that was silent for the grace, too."""
    of = {"region": region, "grace": grace_seconds, "now": now}
    if not (await connection.execute(_IS_ANY_DUE, of)).scalar_one():
        return NodeMoves()
    # An agent registers under the same lock, so what it makes ready is not judged by an old lease.
    await lock_region(connection, region)
    version = await advance_region(connection, region)
    moved: dict[NodeState, list[NodeId]] = {state: [] for state in NodeState}
    for row in await connection.execute(_MOVE, {**of, "version": version}):
        moved[NodeState(row.state)].append(NodeId(row.node))
    lost = sorted(moved[NodeState.LOST])
    if lost:
        await audit.append(
            connection,
            region,
            actor=ACTOR,
            action="lose nodes",
            target=f"region/{region}",
            after={"nodes": lost[:MAX_NAMED], "count": len(lost)},
        )
    return NodeMoves(moved[NodeState.READY], moved[NodeState.UNKNOWN], lost)
