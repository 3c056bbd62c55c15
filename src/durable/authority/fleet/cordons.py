"""Cordons: operators keep new work off nodes; what runs there stays."""

from collections.abc import Sequence

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.drains.rows import refuse_while_drained
from durable.authority.fleet.node_targets import find_nodes
from durable.authority.fleet.regions import advance_region, lock_region
from durable.authority.operators.authorization import check_right
from durable.authority.operators.refusals import audits_refusals
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import ActorId, NodeId, RegionId
from durable.model.operators.rights import Scope, Verb
from durable.validation.text import PLAIN_TEXT

_SET = text("""
    UPDATE regional.nodes
       SET cordon_reason = :reason, cordoned_by = :actor, cordoned_for = :drain,
           changed_version = :version
     WHERE region = :region AND node = ANY(:nodes)
""")


@audits_refusals
async def cordon_nodes(
    databases: Databases, target: NodesTarget, *, actor: ActorId, reason: str
) -> list[NodeId]:
    """Keeps new work off nodes; answers those that took new work, or had another reason."""
    reason = PLAIN_TEXT.validate_python(reason)
    await check_right(databases, actor, Verb.CORDON, Scope(region=target.region))
    return await _set_cordon(databases, target.region, target, actor, reason)


@audits_refusals
async def uncordon_nodes(
    databases: Databases, target: NodesTarget, *, actor: ActorId, reason: str
) -> list[NodeId]:
    """Lets nodes take new work again; answers those that did not. Refused while they drain."""
    await check_right(databases, actor, Verb.CORDON, Scope(region=target.region))
    return await _set_cordon(databases, target.region, target, actor, None, reason)


@regional_transaction("durable_operator", "cordon or uncordon {target}")
async def _set_cordon(
    connection: AsyncConnection,
    region: RegionId,
    target: NodesTarget,
    actor: ActorId,
    cordon: str | None,
    why: str = "",
) -> list[NodeId]:
    await lock_region(connection, region)
    found = await find_nodes(connection, target)
    if cordon is None:
        await refuse_while_drained(connection, region, [one.node for one in found])
    changed = [one.node for one in found if one.cordon_reason != cordon]
    if not changed:
        return []
    await write_cordons(connection, region, changed, reason=cordon, actor=actor)
    before = {str(one.node): one.cordon_reason for one in found if one.node in changed}
    await audit.append(
        connection,
        region,
        actor=actor,
        action="uncordon nodes" if cordon is None else "cordon nodes",
        target=f"{target.kind}/{target.name}",
        before={"cordons": before},
        after={"nodes": list(map(str, changed)), "reason": cordon or why},
    )
    return changed


async def write_cordons(
    connection: AsyncConnection,
    region: RegionId,
    nodes: Sequence[NodeId],
    *,
    reason: str | None,
    actor: ActorId,
    drain: str | None = None,
) -> None:
    """Sets cordons, for a drain if one is named, or removes them; under the region's lock."""
    if not nodes:
        return
    version = await advance_region(connection, region)
    row = {"region": region, "nodes": list(map(str, nodes)), "version": version}
    owner = {"actor": None, "drain": None} if reason is None else {"actor": actor, "drain": drain}
    await connection.execute(_SET, {**row, "reason": reason, **owner})
