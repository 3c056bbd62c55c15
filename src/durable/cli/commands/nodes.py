"""`durable cordon`, `uncordon`, `drain` and `maintenance`: work on nodes, announced before."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter

from durable.authority.db.connection import Databases
from durable.authority.fleet.cordons import cordon_nodes, uncordon_nodes
from durable.authority.recovery.maintenance import begin_maintenance, end_maintenance
from durable.cli.connections import current_user, with_authority
from durable.cli.input.options import (
    AsJson,
    Reason,
    StateDir,
    flag,
    parse_option,
    parse_region,
)
from durable.cli.render.following import follow_lines
from durable.cli.render.output import conclude, say
from durable.cli.verbs import MessageCommand, VerbInput, message, print_answer
from durable.model.fleet.drain import Drain, DrainState, NodesKind, NodesTarget
from durable.model.ids import Identifier, NodeId, PoolId, RegionId, ZoneId
from durable.model.recovery.detection import RegionMaintenance
from durable.reports.drain import summary_of_drain
from durable.resources.lookups import Lookups
from durable.resources.orders import DrainRow
from durable.signals.names import DRAIN, drain_id
from durable.validation.quantities import Duration
from durable.validation.text import PLAIN_TEXT, counted

if TYPE_CHECKING:
    from durable.client import Durable

NodeArgument = Annotated[
    str | None, typer.Argument(metavar="NODE", help="The node, as durable get nodes names it.")
]
ZoneOption = Annotated[str | None, typer.Option("--zone", help="All nodes of this zone.")]
PoolOption = Annotated[str | None, typer.Option("--pool", help="All nodes of this pool.")]
NodesRegion = Annotated[
    str | None, typer.Option("--region", help="The region, if more than one has such a name.")
]

_DURATION: TypeAdapter[timedelta] = TypeAdapter(Duration)

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


# ── cordons ─────────────────────────────────────────────────────────────────────────────────────


def _cordon(verb: str, change: Callable[..., Awaitable[list[NodeId]]]) -> Callable[..., None]:
    """One command that changes whether nodes take new work, also while Temporal does not answer."""

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

        target, nodes = with_authority(state_dir, run)
        sentence = f"Nothing changed: {target} was {verb}ed like that before."
        if nodes:
            count = counted(len(nodes), "node")
            sentence = f"{count} of {target.region} {verb}ed: {target.short}."
        content = {"nodes": list(map(str, nodes)), "region": str(target.region)}
        conclude(as_json, content, say(sentence))

    return command


cordon = _cordon("cordon", cordon_nodes)
uncordon = _cordon("uncordon", uncordon_nodes)


# ── maintenance ─────────────────────────────────────────────────────────────────────────────────


def maintenance(
    region: Annotated[str, typer.Argument(metavar="REGION", help="A region.")],
    reason: Reason,
    lasts: Annotated[
        str | None, typer.Option("--for", help="For how long from now, such as 30m; at most 24h.")
    ] = None,
    end: Annotated[bool, flag("--end", help="End it now.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    name = parse_option("REGION", RegionId, region)
    if (lasts is None) is not end:
        raise typer.BadParameter("give one of the two: --for 30m, or --end", param_hint="--for")
    length = None if lasts is None else parse_option("--for", _DURATION.validate_python, lasts)
    who: dict[str, Any] = {"actor": current_user(), "reason": reason}

    async def run(databases: Databases) -> RegionMaintenance | bool:
        if length is None:
            return await end_maintenance(databases, name, **who)
        return await begin_maintenance(databases, name, lasts=length, **who)

    mark = with_authority(state_dir, run)
    if isinstance(mark, RegionMaintenance):
        sentence = f"{name} is in maintenance {mark}. A person may still declare its loss."
        conclude(as_json, {"region": name, "maintenance": mark}, say(sentence))
        return
    sentence = f"{name} is watched again." if mark else f"{name} was not in maintenance."
    conclude(as_json, {"region": name, "maintenance": None}, say(sentence))


# ── drains ──────────────────────────────────────────────────────────────────────────────────────


async def _send(durable: "Durable", given: VerbInput) -> Drain | str:
    """A drain that has begun, or what the one that was cancelled answered."""
    target = await given.target.locate(durable)
    if given.own["cancel"]:
        who: dict[str, Any] = {name: given.fields[name] for name in ("reason", "request_id")}
        return await durable.drains.cancel(target, **who)
    return await durable.drains.start(target, **given.fields)


async def _follow(durable: "Durable", given: VerbInput, answer: Drain | str) -> DrainRow | None:
    """Shows the drain until it ends, or until it is not waited for any longer."""
    if isinstance(answer, str):
        return None
    # One that is not waited for is shown once.
    within = given.timeout_seconds
    return await follow_lines(
        durable.drains.follow(answer),
        lambda row: summary_of_drain(row, row.left, row.waits_for),
        name=drain_id(answer.target),
        within_seconds=60.0 if within is None else within,
        until=lambda _: within is None,
    )


def _conclude(given: VerbInput, answer: Drain | str, row: DrainRow | None) -> None:
    """Ends well if the nodes are empty, or were not waited for."""
    if isinstance(answer, str):
        print_answer(given, answer)
        return
    assert row is not None, "a drain is shown at least once"
    failure, sentence = None, f"{row.target} is being drained; see `durable get drains`."
    if row.state is DrainState.DRAINED:
        sentence = f"{row.target} is drained."
    if row.state in (DrainState.GAVE_UP, DrainState.CANCELLED):
        failure = (
            f"{row.target} is not drained: {row.outcome} To go on, remove what blocks it and "
            "drain again; `durable uncordon` lets the nodes take work."
        )
    conclude(
        given.as_json,
        {"drain": row},
        say(sentence) if failure is None else lambda: None,
        failure=failure,
        code="not_drained",
    )


_CANCEL = flag("--cancel", help="Cancel the drain that runs, and uncordon what it cordoned.")

drain = MessageCommand(
    path="drain",
    message=message(DRAIN, "drain"),
    target={
        "node": (NodeArgument, None),
        "zone": (ZoneOption, None),
        "pool": (PoolOption, None),
        "region": (NodesRegion, None),
    },
    parse=NodesChoice,
    own={"cancel": (Annotated[bool, _CANCEL], False)},
    send=_send,
    follow=_follow,
    conclude=_conclude,
    continues=("drain", "durable get drains"),
).function()
