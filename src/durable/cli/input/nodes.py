"""How commands name nodes: one by its name, or all of a zone or a pool."""

from typing import Annotated

import typer

from durable.cli.input.options import parse_option, parse_region
from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import Identifier, NodeId, PoolId, ZoneId
from durable.resources.lookups import Lookups

NodeArgument = Annotated[
    str | None, typer.Argument(metavar="NODE", help="The node, as durable get nodes names it.")
]
ZoneOption = Annotated[str | None, typer.Option("--zone", help="All nodes of this zone.")]
PoolOption = Annotated[str | None, typer.Option("--pool", help="All nodes of this pool.")]
NodesRegion = Annotated[
    str | None, typer.Option("--region", help="The region, if more than one has such a name.")
]

_KINDS: dict[NodesKind, tuple[str, type[Identifier]]] = {
    NodesKind.NODE: ("NODE", NodeId),
    NodesKind.ZONE: ("--zone", ZoneId),
    NodesKind.POOL: ("--pool", PoolId),
}


class NodesChoice:
    """The nodes that a command line names; where they are is found out later."""

    def __init__(
        self, node: str | None, zone: str | None, pool: str | None, region: str | None
    ) -> None:
        given = {NodesKind.NODE: node, NodesKind.ZONE: zone, NodesKind.POOL: pool}
        named = [(kind, name) for kind, name in given.items() if name is not None]
        if len(named) != 1:
            raise typer.BadParameter(
                f"got {len(named)} of them; name one: NODE, --zone ZONE or --pool POOL",
                param_hint="NODE",
            )
        ((self._kind, text),) = named
        option, parse = _KINDS[self._kind]
        self._name = parse_option(option, parse, text)
        self._region = parse_region(region)

    async def locate(self, reader: Lookups) -> NodesTarget:
        """The region that has them; refused if none does, or more than one."""
        return await reader.locate(self._kind, self._name, self._region)
