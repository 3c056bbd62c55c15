"""`durable drain`: empties nodes, and shows what is left and what keeps it."""

import asyncio
from typing import Annotated

import typer

from durable.cli.connections import with_durable
from durable.cli.input.nodes import (
    NodeArgument,
    NodesChoice,
    NodesRegion,
    PoolOption,
    ZoneOption,
    parse_deadline,
)
from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    NoWait,
    Reason,
    StateDir,
    Timeout,
    flag,
    request_id_of,
)
from durable.cli.render.drains import DrainLines
from durable.cli.render.output import error_object, fail, print_json, progress, results
from durable.client import Durable
from durable.model.fleet.drain import Drain, DrainProgress, DrainState
from durable.model.refusal import RefusalCode, RefusedError
from durable.resources.orders import drain_row
from durable.signals.names import drain_id

Seen = tuple[Drain, DrainProgress]


def drain(
    node: NodeArgument = None,
    zone: ZoneOption = None,
    pool: PoolOption = None,
    region: NodesRegion = None,
    cancel: Annotated[
        bool, flag("--cancel", help="Cancel the drain that runs, and undo its cordon.")
    ] = False,
    deadline: Annotated[
        str, typer.Option("--deadline", help="Give up after this, such as 30m.")
    ] = "1h",
    wait_for_jobs: Annotated[
        bool, flag("--wait-for-jobs", help="Let jobs end instead of running them elsewhere.")
    ] = False,
    no_wait: NoWait = False,
    timeout: Timeout = 3_600.0,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable drain",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Cordon nodes and replace what runs there, each replica up elsewhere before it is stopped."""
    choice = NodesChoice(node, zone, pool, region)
    within = parse_deadline(deadline)
    request = request_id_of(request_id)

    async def cancel_it(durable: Durable) -> str:
        target = await choice.locate(durable)
        return await durable.drains.cancel(target, reason=reason, request_id=request)

    async def drain_them(durable: Durable) -> Seen:
        target = await choice.locate(durable)
        begun = await durable.drains.start(
            target,
            reason=reason,
            request_id=request,
            deadline=within,
            wait_for_jobs=wait_for_jobs,
        )
        return await _follow(durable, begun, no_wait=no_wait, within_seconds=timeout)

    if cancel:
        answer = with_durable(state_dir, cancel_it)
        if as_json:
            print_json({"answer": answer})
        else:
            results.print(answer)
        return
    try:
        seen = with_durable(state_dir, drain_them)
    except KeyboardInterrupt:
        progress.print("The drain continues in the background; see `durable get drains`.")
        raise
    _conclude(seen, as_json)


async def _follow(durable: Durable, begun: Drain, *, no_wait: bool, within_seconds: float) -> Seen:
    """Shows the drain until it ends, or until it is not waited for any longer."""
    lines = DrainLines()
    last: Seen | None = None
    try:
        async with asyncio.timeout(within_seconds):
            async for seen in durable.drains.follow(begun):
                last = seen
                lines.show(*seen)
                if no_wait:
                    break
    except TimeoutError:
        name = drain_id(begun.target)
        left = "" if last is None or not last[1].waits_for else f" It waits: {last[1].waits_for}"
        raise RefusedError(
            RefusalCode.TIMED_OUT,
            f"{name} is not done after {within_seconds:.0f} s; it continues.{left}",
        ) from None
    assert last is not None
    return last


def _conclude(seen: Seen, as_json: bool) -> None:
    """Ends well if the nodes are empty, or were not waited for."""
    drain, _ = seen
    failure = None
    if drain.state in (DrainState.GAVE_UP, DrainState.CANCELLED):
        failure = (
            f"{drain.target} is not drained: {drain.outcome} To go on, remove what blocks it and "
            "drain again; `durable uncordon` lets the nodes take work."
        )
    if as_json:
        row = drain_row(*seen).model_dump(mode="json")
        print_json({"drain": row, **error_object("not_drained", failure)})
    elif failure is None:
        results.print(
            f"{drain.target} is drained."
            if drain.state is DrainState.DRAINED
            else f"{drain.target} is being drained; see `durable get drains`."
        )
    if failure is not None:
        fail(failure)
