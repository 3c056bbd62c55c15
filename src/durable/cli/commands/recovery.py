"""`durable recovery`: declare, show, confirm, veto, fail back and settle the loss of a region."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from durable.cli.connections import with_durable, with_reader
from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    NoWait,
    Reason,
    StateDir,
    Timeout,
    parse_region,
    request_id_of,
)
from durable.cli.render.output import error_object, fail, print_json, results
from durable.cli.render.recoveries import RecoveryLines, print_recovery
from durable.client import Durable
from durable.model.ids import RegionId
from durable.model.recovery.recoveries import (
    RecoveryKey,
    RecoveryProgress,
    RecoveryStage,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.resources.table import RECOVERIES
from durable.temporal.recoveries import Recoveries

app = typer.Typer(
    no_args_is_help=True, help="Declare, show, confirm, veto and end the loss of a region."
)

RegionArgument = Annotated[str, typer.Argument(metavar="REGION", help="A region.")]

# Until then a recovery moves work; afterwards it waits for the region and for a person.
_MOVED = frozenset(
    {
        RecoveryStage.HOLDING,
        RecoveryStage.FAILED_BACK,
        RecoveryStage.SETTLED,
        RecoveryStage.VETOED,
        RecoveryStage.DISMISSED,
        RecoveryStage.SUPERSEDED,
    }
)


@app.command()
def declare(
    region: RegionArgument,
    no_wait: NoWait = False,
    timeout: Timeout = 600.0,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable recovery declare",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Say that a region is lost: it is fenced, and its work moves elsewhere, critical work first.

    Ends when everything was moved; exits 1 if the objective was missed.
    """
    lost, request = _region(region), request_id_of(request_id)

    async def send(durable: Durable) -> RecoveryProgress | None:
        key = await durable.recoveries.declare(lost, reason=reason, request_id=request)
        return None if no_wait else await _follow(durable, key, timeout)

    now = with_durable(state_dir, send)
    if now is None:
        answer = f"{lost} is being fenced and emptied; see durable recovery show {lost}."
        print_json({"answer": answer}) if as_json else results.print(answer)
        return
    failure = None if now.report.is_met else f"The objective was missed: {now.report}."
    if as_json:
        shown = now.model_dump(mode="json")
        print_json({"recovery": shown, **error_object("objective_missed", failure)})
    else:
        print_recovery(now)
    if failure is not None:
        fail(failure)


@app.command()
def show(region: RegionArgument, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show the newest recovery of a region: what was moved, what waits, and the objective."""
    name = _region(region)
    shown: RecoveryProgress = with_reader(state_dir, lambda reader: reader.show(RECOVERIES, name))
    if as_json:
        print_json(shown.model_dump(mode="json"))
    else:
        print_recovery(shown)


@app.command()
def confirm(
    region: RegionArgument,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable recovery confirm",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Confirm that a suspected region is lost, without waiting for the policy's grace."""
    _send(Recoveries.confirm, region, request_id, reason, state_dir, as_json)


@app.command()
def veto(
    region: RegionArgument,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable recovery veto",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Say that a region is not lost, however it looks; refused once it is fenced."""
    _send(Recoveries.veto, region, request_id, reason, state_dir, as_json)


@app.command()
def failback(
    region: RegionArgument,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable recovery failback",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Open the region, and give it back what was moved out of it, make-before-break."""
    _send(Recoveries.fail_back, region, request_id, reason, state_dir, as_json)


@app.command()
def settle(
    region: RegionArgument,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable recovery settle",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Leave what was moved where it is, and end the recovery."""
    _send(Recoveries.settle, region, request_id, reason, state_dir, as_json)


def _send(
    send: Callable[..., Awaitable[str]],
    region: str,
    request_id: str | None,
    reason: str,
    state_dir: StateDir,
    as_json: bool,
) -> None:
    """Sends one of the orders that recoveries take."""
    name, request = _region(region), request_id_of(request_id)
    answer = with_durable(
        state_dir,
        lambda durable: send(durable.recoveries, name, reason=reason, request_id=request),
    )
    if as_json:
        print_json({"answer": answer})
    else:
        results.print(answer)


async def _follow(durable: Durable, key: RecoveryKey, within_seconds: float) -> RecoveryProgress:
    """Shows the recovery until everything was moved."""
    lines, last = RecoveryLines(), None
    try:
        async with asyncio.timeout(within_seconds):
            async for now in durable.recoveries.follow(key):
                last = now
                lines.show(now)
                if now.recovery.stage in _MOVED and _is_settled(now):
                    return now
    except TimeoutError:
        waits = "" if last is None else f" It waits for {last.waits_for}."
        raise RefusedError(
            RefusalCode.TIMED_OUT,
            f"{key} is not done after {within_seconds:.0f} s; it continues.{waits}",
        ) from None
    assert last is not None
    return last


def _is_settled(now: RecoveryProgress) -> bool:
    """Whether every critical workload has recovered or is late: then it is known how it went."""
    report = now.report
    return report.recovered == report.critical or report.missed > 0 or now.recovery.is_over


def _region(name: str) -> RegionId:
    found = parse_region(name)
    assert found is not None
    return found
