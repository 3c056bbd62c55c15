"""`durable recovery`: declare, show, confirm, veto, fail back and settle the loss of a region."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from durable.cli.connections import with_reader
from durable.cli.input.options import AsJson, StateDir, parse_region
from durable.cli.render.following import follow_lines
from durable.cli.render.output import conclude
from durable.cli.render.reports import print_recovery
from durable.cli.verbs import MessageCommand, VerbInput, message, print_answer
from durable.model.ids import RegionId
from durable.model.recovery.recoveries import (
    RecoveryKey,
    RecoveryPhase,
    RecoveryProgress,
)
from durable.reports.recovery import summary_of_recovery
from durable.resources.table import RECOVERIES
from durable.signals.names import RECOVERY

if TYPE_CHECKING:
    from durable.client import Durable

app = typer.Typer(no_args_is_help=True)

RegionArgument = Annotated[str, typer.Argument(metavar="REGION", help="A region.")]

# Until then a recovery moves work; afterwards it waits for the region and for a person.
_MOVED = frozenset(
    {
        RecoveryPhase.HOLDING,
        RecoveryPhase.FAILED_BACK,
        RecoveryPhase.SETTLED,
        RecoveryPhase.VETOED,
        RecoveryPhase.DISMISSED,
        RecoveryPhase.SUPERSEDED,
    }
)


def _region(name: str) -> RegionId:
    region = parse_region(name)
    assert region is not None
    return region


@app.command()
def show(region: RegionArgument, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show the newest recovery of a region: what was moved, what waits, and the objective."""
    name = _region(region)
    shown: RecoveryProgress = with_reader(state_dir, lambda reader: reader.show(RECOVERIES, name))
    conclude(as_json, shown, lambda: print_recovery(shown))


# ── orders ──────────────────────────────────────────────────────────────────────────────────────


async def _follow(
    durable: "Durable", given: VerbInput, key: RecoveryKey
) -> RecoveryProgress | None:
    """Shows the recovery until everything was moved."""
    if given.timeout_seconds is None:
        return None
    return await follow_lines(
        durable.recoveries.follow(key),
        summary_of_recovery,
        name=str(key),
        within_seconds=given.timeout_seconds,
        until=lambda now: now.recovery.phase in _MOVED and _is_settled(now),
    )


def _conclude(given: VerbInput, _: RecoveryKey, now: RecoveryProgress | None) -> None:
    """Ends well if the objective was met, or nothing was waited for."""
    if now is None:
        see = f"durable recovery show {given.target}"
        print_answer(given, f"{given.target} is being fenced and emptied; see {see}.")
        return
    failure = None if now.report.is_met else f"The objective was missed: {now.report}."
    conclude(
        given.as_json,
        {"recovery": now},
        lambda: print_recovery(now),
        failure=failure,
        code="objective_missed",
    )


def _is_settled(now: RecoveryProgress) -> bool:
    """Whether every critical workload has recovered or is late: then it is known how it went."""
    report = now.report
    return report.recovered == report.critical or report.missed > 0 or now.recovery.has_ended


def _order(name: str, sentence: str, row: str = "", order: str = "", **own: Any) -> MessageCommand:
    """What is sent to the recovery that a region has, or would have."""
    return MessageCommand(
        path=f"recovery {name}",
        message=message(RECOVERY, row or name),
        sentence=sentence,
        target={"region": (RegionArgument,)},
        parse=_region,
        send=lambda durable, given: getattr(durable.recoveries, order or name)(
            given.target, **given.fields
        ),
        continues=("recovery", "durable get recoveries"),
        **own,
    )


for _command in (
    _order(
        "declare",
        "Say that a region is lost: it is fenced, and its work moves elsewhere, critical work "
        "first.\n\nEnds when everything was moved; exits 1 if the objective was missed.",
        row="confirm",
        follow=_follow,
        conclude=_conclude,
        follows_seconds=600.0,
    ),
    _order(
        "confirm",
        "Confirm that a suspected region is lost, without waiting for the policy's grace.",
    ),
    _order("veto", "Say that a region is not lost, however it looks; refused once it is fenced."),
    _order(
        "failback",
        "Open the region, and give it back what was moved out of it, make-before-break.",
        order="fail_back",
    ),
    _order("settle", "Leave what was moved where it is, and end the recovery."),
):
    _command.add_to(app)
