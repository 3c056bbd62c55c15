"""Nodes by their own name, or by that of their zone or pool."""

from dataclasses import dataclass

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import ask_regions
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.regions import list_regions
from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import Identifier, NodeId, RegionId
from durable.model.refusal import RefusalCode, RefusedError

_NAMES_SHOWN = 10

_FIND = text("""
    SELECT node, cordon_reason, cordoned_by, cordoned_for FROM regional.nodes
     WHERE region = :region AND state <> 'removed'
       AND CASE :kind WHEN 'node' THEN node WHEN 'zone' THEN zone ELSE pool END = :name
     ORDER BY node
""")

_KNOWN = text("""
    SELECT DISTINCT CASE :kind WHEN 'node' THEN node WHEN 'zone' THEN zone ELSE pool END AS name
      FROM regional.nodes WHERE region = :region AND state <> 'removed' ORDER BY name LIMIT :most
""")

_UNKNOWN = {
    NodesKind.NODE: RefusalCode.UNKNOWN_NODE,
    NodesKind.ZONE: RefusalCode.UNKNOWN_ZONE,
    NodesKind.POOL: RefusalCode.UNKNOWN_POOL,
}


@dataclass(frozen=True)
class FoundNode:
    """A node, and who keeps new work off it."""

    node: NodeId
    cordon_reason: str | None
    cordoned_by: str | None
    # The drain that does, if one does.
    cordoned_for: str | None


async def find_nodes(connection: AsyncConnection, target: NodesTarget) -> list[FoundNode]:
    """The nodes that are meant, in order; refused if there is none."""
    of = {"region": target.region, "kind": target.kind.value, "name": target.name}
    found = [
        FoundNode(NodeId(row.node), row.cordon_reason, row.cordoned_by, row.cordoned_for)
        for row in await connection.execute(_FIND, of)
    ]
    if found:
        return found
    rows = await connection.execute(_KNOWN, {**of, "most": _NAMES_SHOWN})
    known = ", ".join(row.name for row in rows) or "none"
    what = f"node {target.name}" if target.kind is NodesKind.NODE else f"nodes in {target.short}"
    raise RefusedError(
        _UNKNOWN[target.kind],
        f"{target.region} has no {what}; allowed: a {target.kind} with nodes, such as {known}; "
        "see `durable get nodes`.",
    )


@regional_transaction("durable_reader", "look for nodes in {region}")
async def _has_nodes(
    connection: AsyncConnection, region: RegionId, kind: NodesKind, name: Identifier
) -> bool:
    of = {"region": region, "kind": kind.value, "name": name}
    return (await connection.execute(_FIND, of)).first() is not None


async def locate_nodes(
    databases: Databases, kind: NodesKind, name: Identifier, region: RegionId | None = None
) -> NodesTarget:
    """The region that has the nodes; refused if none does, or if more than one could be meant."""
    regions = await list_regions(databases)
    if region is not None:
        if region not in regions:
            known = ", ".join(regions) or "none"
            raise RefusedError(
                RefusalCode.UNKNOWN_REGION,
                f"There is no region {region}; the regions are {known}.",
            )
        return NodesTarget(region=region, kind=kind, name=name)
    answers = await ask_regions(regions, lambda one: _has_nodes(databases, one, kind, name))
    found = [one for one, has in answers.by_region.items() if has]
    if len(found) == 1 and not answers.unreachable:
        return NodesTarget(region=found[0], kind=kind, name=name)
    if len(found) > 1:
        sentence = f"There is a {kind} {name} in {' and in '.join(found)}; add --region."
        raise RefusedError(_UNKNOWN[kind], sentence)
    if answers.unreachable:
        sentence = (
            f"{', '.join(answers.unreachable)} did not answer, so it is not known where {kind} "
            f"{name} is; add --region."
        )
        raise RefusedError(_UNKNOWN[kind], sentence)
    raise RefusedError(
        _UNKNOWN[kind],
        f"No region has nodes in {kind} {name}; see `durable get nodes`."
        if kind is not NodesKind.NODE
        else f"No region has a node {name}; see `durable get nodes`.",
    )
