"""`durable cordon` and `durable uncordon`: keep new work off nodes, and let it come again."""

from durable.authority.db.connection import Databases
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.cli.connections import current_user, with_authority
from durable.cli.input.nodes import (
    NodeArgument,
    NodesChoice,
    NodesRegion,
    PoolOption,
    ZoneOption,
)
from durable.cli.input.options import AsJson, Reason, StateDir, parse_option
from durable.cli.render.output import counted, print_json, results
from durable.model.drain import NodesTarget
from durable.model.ids import NodeId
from durable.validation.text import PLAIN_TEXT

Changed = tuple[NodesTarget, list[NodeId]]


def cordon(
    node: NodeArgument = None,
    zone: ZoneOption = None,
    pool: PoolOption = None,
    region: NodesRegion = None,
    reason: Reason = "durable cordon",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Keep new work off nodes; what runs there stays."""
    choice = NodesChoice(node, zone, pool, region)
    why = parse_option("--reason", PLAIN_TEXT.validate_python, reason)

    async def change(databases: Databases) -> Changed:
        target = await choice.locate(databases)
        nodes = await cordon_nodes(databases, target, actor=current_user(), reason=why)
        return target, nodes

    _show(*with_authority(state_dir, change), "cordoned", as_json)


def uncordon(
    node: NodeArgument = None,
    zone: ZoneOption = None,
    pool: PoolOption = None,
    region: NodesRegion = None,
    reason: Reason = "durable uncordon",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Let cordoned nodes take new work again; refused while they are drained."""
    choice = NodesChoice(node, zone, pool, region)
    why = parse_option("--reason", PLAIN_TEXT.validate_python, reason)

    async def change(databases: Databases) -> Changed:
        target = await choice.locate(databases)
        nodes = await uncordon_nodes(databases, target, actor=current_user(), reason=why)
        return target, nodes

    _show(*with_authority(state_dir, change), "uncordoned", as_json)


def _show(target: NodesTarget, nodes: list[NodeId], done: str, as_json: bool) -> None:
    if as_json:
        print_json({"nodes": list(map(str, nodes)), "region": str(target.region)})
    elif nodes:
        results.print(f"{counted(len(nodes), 'node')} of {target.region} {done}: {target.short}.")
    else:
        results.print(f"Nothing changed: {target} was {done} like that before.")
