"""`durable drain`: empties nodes, and shows what is left and what keeps it."""

from typing import TYPE_CHECKING, Annotated

from durable.cli.input.nodes import (
    NodeArgument,
    NodesChoice,
    NodesRegion,
    PoolOption,
    ZoneOption,
)
from durable.cli.input.options import flag
from durable.cli.render.following import follow_lines
from durable.cli.render.output import error_object, fail, print_json, results
from durable.cli.verbs import MessageCommand, VerbInput, message, print_answer
from durable.model.fleet.drain import Drain, DrainProgress, DrainState
from durable.reports.drain import summary_of_drain
from durable.resources.orders import drain_row
from durable.signals.names import DRAIN, drain_id

if TYPE_CHECKING:
    from durable.client import Durable

DrainView = tuple[Drain, DrainProgress]


async def _send(durable: "Durable", given: VerbInput) -> Drain | str:
    """A drain that has begun, or what the one that was cancelled answered."""
    target = await given.target.locate(durable)
    if given.own["cancel"]:
        who = {name: given.fields[name] for name in ("reason", "request_id")}
        return await durable.drains.cancel(target, **who)
    return await durable.drains.start(target, **given.fields)


async def _follow(durable: "Durable", given: VerbInput, answer: Drain | str) -> DrainView | None:
    """Shows the drain until it ends, or until it is not waited for any longer."""
    if isinstance(answer, str):
        return None
    # One that is not waited for is shown once.
    within = given.timeout_seconds
    return await follow_lines(
        durable.drains.follow(answer),
        lambda view: summary_of_drain(*view),
        name=drain_id(answer.target),
        within_seconds=60.0 if within is None else within,
        waits_for=lambda view: view[1].waits_for,
        until=lambda _: within is None,
    )


def _conclude(given: VerbInput, answer: Drain | str, view: DrainView | None) -> None:
    """Ends well if the nodes are empty, or were not waited for."""
    if isinstance(answer, str):
        print_answer(given, answer)
        return
    assert view is not None, "a drain is shown at least once"
    drain, failure = view[0], None
    if drain.state in (DrainState.GAVE_UP, DrainState.CANCELLED):
        failure = (
            f"{drain.target} is not drained: {drain.outcome} To go on, remove what blocks it and "
            "drain again; `durable uncordon` lets the nodes take work."
        )
    if given.as_json:
        row = drain_row(*view).model_dump(mode="json")
        print_json({"drain": row, **error_object("not_drained", failure)})
    elif failure is None:
        results.print(
            f"{drain.target} is drained."
            if drain.state is DrainState.DRAINED
            else f"{drain.target} is being drained; see `durable get drains`."
        )
    if failure is not None:
        fail(failure)


drain = MessageCommand(
    path="drain",
    message=message(DRAIN, "drain"),
    sentence="Cordon nodes and replace what runs there, each replica up elsewhere before it is "
    "stopped.",
    target={
        "node": (NodeArgument, None),
        "zone": (ZoneOption, None),
        "pool": (PoolOption, None),
        "region": (NodesRegion, None),
    },
    parse=NodesChoice,
    own={
        "cancel": (
            Annotated[
                bool, flag("--cancel", help="Cancel the drain that runs, and undo its cordon.")
            ],
            False,
        )
    },
    send=_send,
    follow=_follow,
    conclude=_conclude,
    continues=("drain", "durable get drains"),
).function()
