"""`durable cordon` and `durable uncordon`: keep new work off nodes, and let it come again."""

from collections.abc import Awaitable, Callable

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
from durable.cli.render.output import print_json, results
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import NodeId
from durable.resources.lookups import Lookups
from durable.validation.text import PLAIN_TEXT, counted

Command = Callable[..., None]


def _command(verb: str, change: Callable[..., Awaitable[list[NodeId]]], sentence: str) -> Command:
    """One command that changes whether nodes take new work, for the same choice of nodes."""

    def command(
        node: NodeArgument = None,
        zone: ZoneOption = None,
        pool: PoolOption = None,
        region: NodesRegion = None,
        reason: Reason = f"durable {verb}",
        state_dir: StateDir = None,
        as_json: AsJson = False,
    ) -> None:
        choice = NodesChoice(node, zone, pool, region)
        why = parse_option("--reason", PLAIN_TEXT.validate_python, reason)

        async def run(databases: Databases) -> tuple[NodesTarget, list[NodeId]]:
            target = await choice.locate(Lookups(databases))
            return target, await change(databases, target, actor=current_user(), reason=why)

        _show(*with_authority(state_dir, run), f"{verb}ed", as_json)

    command.__name__, command.__doc__ = verb, sentence
    return command


cordon = _command("cordon", cordon_nodes, "Keep new work off nodes; what runs there stays.")
uncordon = _command(
    "uncordon",
    uncordon_nodes,
    "Let cordoned nodes take new work again; refused while they are drained.",
)


def _show(target: NodesTarget, nodes: list[NodeId], done: str, as_json: bool) -> None:
    if as_json:
        print_json({"nodes": list(map(str, nodes)), "region": str(target.region)})
    elif nodes:
        results.print(f"{counted(len(nodes), 'node')} of {target.region} {done}: {target.short}.")
    else:
        results.print(f"Nothing changed: {target} was {done} like that before.")
