"""`durable audit`: whether the record is whole, and what to keep outside to prove it later."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from durable.authority.audit.chain import ChainHead, ChainReport, verify_all
from durable.authority.reads.inspection import read_events
from durable.cli.connections import with_authority
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import error_object, print_json, progress, results
from durable.cli.render.tables import print_table
from durable.model.records import AuditEvent

app = typer.Typer(no_args_is_help=True, help="Show and verify the hash-chained audit log.")

MOST = 10_000

Anchors = Annotated[
    list[str] | None,
    typer.Option(
        "--anchor",
        help="A head kept outside, as printed by durable audit head: CHAIN:SEQUENCE:HASH.",
        show_default=False,
    ),
]

_HEAD = re.compile(r"([a-z0-9-]+):([0-9]{1,18}):((?:[0-9a-f]{64})?)")


@app.command()
def verify(anchor: Anchors = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Check every link; exit code 1 and the first broken event if one does not hold."""
    anchors = {head.chain: head for head in map(_head, anchor or [])}
    reports = _verified(state_dir, anchors)
    broken = [report for report in reports if report.broken_at is not None]
    if as_json:
        told = {"holds": not broken, "chains": [_as_json(report) for report in reports]}
        first = broken[0].sentence if broken else None
        print_json({**told, **error_object("broken_chain", first)})
    else:
        _print_reports(reports)
    if broken:
        raise typer.Exit(1)


@app.command()
def head(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Print the last link of every chain; keep it where nobody with database access can write."""
    heads = [report.head for report in _verified(state_dir, {})]
    if as_json:
        print_json({"heads": [str(head) for head in heads]})
    else:
        for one in heads:
            results.print(str(one))


@app.command()
def log(
    chain: Annotated[str | None, typer.Option(help="Only this region's chain, or global.")] = None,
    last: Annotated[int, typer.Option(min=1, max=MOST, help="How many events.")] = 50,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest events, oldest first: who did what, when, and under which role."""
    # One more than is shown tells whether there are more.
    found = with_authority(
        state_dir, lambda databases: read_events(databases, chain=chain, last=last + 1)
    )
    events, are_more = found[-last:], len(found) > last
    if as_json:
        shown = [event.model_dump(mode="json") for event in events]
        print_json({"events": shown, "older_left_out": are_more})
        return
    if not events:
        under = f" under {escape(chain)}; durable audit head lists the chains" if chain else " yet"
        results.print(f"Nothing was recorded{under}.")
        return
    print_table(("When", "Chain", "Who", "Did", "To", "Role"), [_cells(event) for event in events])
    if are_more:
        progress.print(
            f"Older events are left out: --last shows up to {MOST:,}, --chain those of one chain"
        )


def _cells(event: AuditEvent) -> list[str]:
    when = event.at.strftime("%Y-%m-%d %H:%M:%S")
    did = (event.actor, event.action + _said(event), event.object, event.database_role)
    return [when, f"{event.chain} {event.sequence}", *did]


def _said(event: AuditEvent) -> str:
    """Who sent a message and why, as it says itself: nobody else can tell a workflow."""
    payload = (event.after or {}).get("payload")
    try:
        told: Any = json.loads(payload) if isinstance(payload, str) else None
        words = [str(told[name]) for name in ("actor", "reason")]
    except (ValueError, TypeError, KeyError):
        return ""
    return f", sent by {': '.join(words)}"


def _verified(state_dir: Path | None, anchors: dict[str, ChainHead]) -> list[ChainReport]:
    return with_authority(state_dir, lambda databases: verify_all(databases, anchors))


def _head(text: str) -> ChainHead:
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
        results.print("Nothing was recorded yet.")
        return
    table = Table("Chain", "Events", "Finding")
    for report in reports:
        colour = "green" if report.broken_at is None else "red"
        finding = f"[{colour}]{escape(report.sentence)}[/]"
        table.add_row(report.head.chain, str(report.head.sequence), finding)
    results.print(table)
