"""`durable audit`: the log of who changed what, and proof that it was not changed."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from durable.authority.audit.chain import ChainHead, ChainReport, verify_all
from durable.authority.db.everywhere import UnreachableRegions
from durable.cli.connections import with_authority, with_reader
from durable.cli.input.anchors import append_anchors, parse_head, read_anchors
from durable.cli.input.options import AsJson, StateDir, flag, parse_option
from durable.cli.render.output import (
    conclude,
    error_object,
    progress,
    results,
    say,
)
from durable.cli.render.tables import print_table
from durable.model.placement.records import AuditEvent
from durable.validation.quantities import read_duration
from durable.validation.text import counted, show_moment

app = typer.Typer(no_args_is_help=True)

MAX_EVENTS = 10_000

Anchors = Annotated[
    list[str] | None,
    typer.Option(
        "--anchor",
        help="A head stored elsewhere, as durable audit head printed it; repeatable.",
        show_default=False,
    ),
]


@app.command()
def verify(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]", help="A file of durable audit anchor: verify what came after it."
        ),
    ] = None,
    anchor: Anchors = None,
    everything: Annotated[
        bool, flag("--all", help="With a FILE, also what came before its last anchor.")
    ] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Verify every chain; exit with 1 and name the first broken event if one is broken."""
    anchors = {} if file is None else read_anchors(file)
    anchors |= {head.chain: head for head in map(_parse_head, anchor or [])}
    from_anchors = file is not None and not everything
    reports, unreachable = _verify(state_dir, anchors, from_anchors=from_anchors)
    broken = _broken(reports)
    content = {
        "holds": broken is None,
        "chains": [_as_json(report) for report in reports],
        **error_object("broken_chain", broken),
    }
    conclude(as_json, content, lambda: _print_reports(reports), unreachable=unreachable)
    if broken or unreachable:
        raise typer.Exit(1)


@app.command("anchor")
def write_anchor(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Where no database user can write; it is appended to."),
    ],
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Verify every chain from the last anchor in FILE on, then append its head as the next."""
    anchors = read_anchors(file) if file.exists() else {}
    reports, unreachable = _verify(state_dir, anchors, from_anchors=True)
    broken = _broken(reports)
    heads = [] if broken else [report.head for report in reports]
    if not broken:
        append_anchors(file, heads)
    anchored = say(f"{counted(len(reports), 'chain')} anchored in {file}.")
    conclude(
        as_json,
        {"heads": list(map(str, heads)), **error_object("broken_chain", broken)},
        (lambda: _print_reports(reports)) if broken else anchored,
        unreachable=unreachable,
    )
    if broken or unreachable:
        raise typer.Exit(1)


@app.command()
def head(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Print the head of every chain, to be stored where no database user can write."""
    reports, unreachable = _verify(state_dir, {})
    heads = [str(report.head) for report in reports]
    show = say("\n".join(heads)) if heads else lambda: None
    conclude(as_json, {"heads": heads}, show, unreachable=unreachable)


@app.command()
def log(
    chain: Annotated[str | None, typer.Option(help="Only this chain: a region, or global.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--object", help="Only this object and what is below it, such as workload/risk."
        ),
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help="Only what this actor did or claims to have sent.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only since then: 90s, 15m, 8h, or 2030-01-01T12:00:00Z."),
    ] = None,
    last: Annotated[int, typer.Option(min=1, max=MAX_EVENTS, help="How many events to show.")] = 50,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the latest events, oldest first: who did what, when, and under which role."""
    begin = None if since is None else parse_option("--since", _moment, since)
    # One event more than requested shows whether older ones were left out.
    found, unreachable = with_reader(
        state_dir,
        lambda reader: reader.events(
            chain=chain, target=target, actor=actor, since=begin, last=last + 1
        ),
    )
    events, has_older = found[-last:], len(found) > last

    def show() -> None:
        if events:
            print_events(events)
        else:
            where = f" in {chain}; see `durable audit head`" if chain else " yet"
            if target or actor or since:
                where = " like that; leave out --object, --actor or --since to see others"
            results.print(f"There are no events{where}.", markup=False)
        if has_older:
            progress.print(
                f"Older events are not shown: raise --last (up to {MAX_EVENTS:,}) or name a --chain"
            )

    content = {"events": events, "has_older": has_older}
    conclude(as_json, content, show, unreachable=unreachable)


def print_events(events: Sequence[AuditEvent]) -> None:
    print_table(
        ("Time", "Chain", "Actor", "Action", "Object", "Role"), [_cells(event) for event in events]
    )


def _cells(event: AuditEvent) -> list[str]:
    link = f"{event.chain} {event.sequence}"
    action = event.action + _sender(event) + _refusal(event)
    return [show_moment(event.at), link, event.actor, action, event.object, event.database_role]


def _sender(event: AuditEvent) -> str:
    """Who sent a message and why, by its own account: a workflow cannot verify its sender."""
    payload = (event.after or {}).get("payload")
    try:
        message: Any = json.loads(payload) if isinstance(payload, str) else None
        sender = [str(message[name]) for name in ("actor", "reason")]
    except (ValueError, TypeError, KeyError):
        return ""
    return f", sent by {': '.join(sender)}"


def _refusal(event: AuditEvent) -> str:
    """Why a message, or a command, changed nothing."""
    after = event.after or {}
    if event.action == "refuse command":
        what = after.get("command") or after.get("verb")
        return f" {what}; refused: {after.get('sentence')}"
    answer = after.get("answer")
    is_refused = event.action.startswith("reject message ") and isinstance(answer, str)
    return f"; refused: {answer}" if is_refused else ""


def _moment(text: str) -> datetime:
    """A moment, or how long ago it was."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return datetime.now(UTC) - read_duration(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _verify(
    state_dir: Path | None, anchors: dict[str, ChainHead], *, from_anchors: bool = False
) -> tuple[list[ChainReport], UnreachableRegions]:
    return with_authority(
        state_dir, lambda databases: verify_all(databases, anchors, from_anchors=from_anchors)
    )


def _broken(reports: Sequence[ChainReport]) -> str | None:
    """What is wrong with the first chain that is broken."""
    return next((report.sentence for report in reports if report.broken_at is not None), None)


def _parse_head(text: str) -> ChainHead:
    return parse_option("--anchor", parse_head, text)


def _as_json(report: ChainReport) -> dict[str, object]:
    return {
        "chain": report.head.chain,
        "events": report.head.sequence,
        "head": str(report.head),
        "broken_at": report.broken_at,
        "finding": report.sentence,
    }


def _print_reports(reports: list[ChainReport]) -> None:
    if not reports:
        results.print("There are no events yet.")
        return
    table = Table("Chain", "Events", "Finding")
    for report in reports:
        colour = "green" if report.broken_at is None else "red"
        finding = f"[{colour}]{escape(report.sentence)}[/]"
        table.add_row(report.head.chain, str(report.head.sequence), finding)
    results.print(table)
