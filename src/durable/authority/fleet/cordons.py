"""Cordons: an operator keeps new work off a node, and what runs there stays."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import advance_region, lock_region
from durable.model.ids import ActorId, NodeId, RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.validation.text import PLAIN_TEXT

_READ = text("SELECT cordon_reason FROM regional.nodes WHERE region = :region AND node = :node")

_SET = text("""
    UPDATE regional.nodes
       SET cordon_reason = :reason, cordoned_by = :actor, changed_version = :version
     WHERE region = :region AND node = :node
""")


async def cordon_node(
    databases: Databases, region: RegionId, node: NodeId, *, actor: ActorId, reason: str
) -> None:
    """Keeps new work off a node; what runs there stays."""
    await _set_cordon(databases, region, node, actor, PLAIN_TEXT.validate_python(reason))


async def uncordon_node(
    databases: Databases, region: RegionId, node: NodeId, *, actor: ActorId
) -> None:
    """Lets the node take new work again."""
    await _set_cordon(databases, region, node, actor, None)


@regional_transaction("durable_operator", "cordon or uncordon {node}")
async def _set_cordon(
    connection: AsyncConnection, region: RegionId, node: NodeId, actor: ActorId, reason: str | None
) -> None:
    key = {"region": region, "node": node}
    await lock_region(connection, region)
    found = (await connection.execute(_READ, key)).one_or_none()
    if found is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_NODE, f"{region} has no node {node}; see `durable fleet show`."
        )
    if found.cordon_reason == reason:
        return
    version = await advance_region(connection, region)
    cordoned_by = None if reason is None else actor
    await connection.execute(
        _SET, {**key, "reason": reason, "actor": cordoned_by, "version": version}
    )
    await audit.append(
        connection,
        region,
        actor=actor,
        action="uncordon node" if reason is None else "cordon node",
        target=f"node/{node}",
        after={"reason": reason},
    )
