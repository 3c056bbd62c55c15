"""`durable audit`: the log of who changed what, and proof that nobody changed the log."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from durable.authority.audit.chain import ChainHead, ChainReport, verify_all
from durable.authority.audit.events import read_events
from durable.authority.db.everywhere import Missing
from durable.cli.connections import with_authority
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import (
    error_object,
    missing_object,
    note_missing,
    print_json,
    progress,
    results,
    timestamp,
)
from durable.cli.render.tables import print_table
from durable.model.records import AuditEvent

app = typer.Typer(no_args_is_help=True, help="Show and verify the hash-chained audit log.")

MAX_EVENTS = 10_000

Anchors = Annotated[
    list[str] | None,
    typer.Option(
        "--anchor",
        help="A head stored elsewhere, as durable audit head printed it; repeatable.",
        show_default=False,
    ),
]

_HEAD = re.compile(r"([a-z0-9-]+):([0-9]{1,18}):((?:[0-9a-f]{64})?)")


@app.command()
def verify(anchor: Anchors = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Verify every chain; exit with 1 and name the first broken event if one is broken."""
    anchors = {head.chain: head for head in map(_parse_head, anchor or [])}
    reports, missing = _verify(state_dir, anchors)
    broken = [report for report in reports if report.broken_at is not None]
    note_missing(missing)
    if as_json:
        content = {"holds": not broken, "chains": [_as_json(report) for report in reports]}
        first = broken[0].sentence if broken else None
        failure = error_object("broken_chain", first)
        print_json({**content, **missing_object(missing), **failure})
    else:
        _print_reports(reports)
    if broken or missing:
        raise typer.Exit(1)


@app.command()
def head(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Print the head of every chain, to be stored where no database user can write."""
    reports, missing = _verify(state_dir, {})
    heads = [report.head for report in reports]
    note_missing(missing)
    if as_json:
        print_json({"heads": [str(head) for head in heads], **missing_object(missing)})
    else:
        for one in heads:
            results.print(str(one))


@app.command()
def log(
    chain: Annotated[str | None, typer.Option(help="Only this chain: a region, or global.")] = None,
    last: Annotated[int, typer.Option(min=1, max=MAX_EVENTS, help="How many events to show.")] = 50,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the latest events, oldest first: who did what, when, and under which role."""
    # One event more than requested shows whether older ones were left out.
    found, missing = with_authority(
        state_dir, lambda databases: read_events(databases, chain=chain, last=last + 1)
    )
    events, has_older = found[-last:], len(found) > last
    note_missing(missing)
    if as_json:
        content = [event.model_dump(mode="json") for event in events]
        print_json({"events": content, "has_older": has_older, **missing_object(missing)})
        return
    if not events:
        where = f" in {escape(chain)}; see durable audit head" if chain else " yet"
        results.print(f"There are no events{where}.")
        return
    print_events(events)
    if has_older:
        progress.print(
            f"Older events are not shown: raise --last (up to {MAX_EVENTS:,}) or name a --chain"
        )


def print_events(events: Sequence[AuditEvent]) -> None:
    print_table(
        ("Time", "Chain", "Actor", "Action", "Object", "Role"), [_cells(event) for event in events]
    )


def _cells(event: AuditEvent) -> list[str]:
    link = f"{event.chain} {event.sequence}"
    action = event.action + _sender(event) + _refusal(event)
    return [timestamp(event.at), link, event.actor, action, event.object, event.database_role]


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
    """Why a message changed nothing."""
    answer = (event.after or {}).get("answer")
    is_refused = event.action.startswith("reject message ") and isinstance(answer, str)
    return f"; refused: {answer}" if is_refused else ""


def _verify(
    state_dir: Path | None, anchors: dict[str, ChainHead]
) -> tuple[list[ChainReport], Missing]:
    return with_authority(state_dir, lambda databases: verify_all(databases, anchors))


def _parse_head(text: str) -> ChainHead:
    match = _HEAD.fullmatch(text)
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is not a head; give CHAIN:SEQUENCE:HASH as durable audit head prints it"
        )
    return ChainHead(match[1], int(match[2]), match[3])


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
