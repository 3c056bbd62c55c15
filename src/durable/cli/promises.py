"""`durable promises`: asks the authority whether each of its promises holds right now."""

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from durable.authority.invariants import (
    AUDIT_PROMISE,
    PROMISES,
    Violation,
    violations_everywhere,
)
from durable.cli.authority import with_authority
from durable.cli.options import AsJson, StateDir
from durable.cli.output import error_object, print_json, results


def promises(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Recompute every invariant from the claims; exit code 1 if one does not hold."""
    broken = with_authority(state_dir, violations_everywhere)
    if as_json:
        shown = [{"promise": found.promise, "row": found.row} for found in broken]
        told = {"holds": not broken, "promises": [*PROMISES, AUDIT_PROMISE], "violations": shown}
        first = f"{broken[0].promise}: {broken[0].row}" if broken else None
        print_json({**told, **error_object("broken_promise", first)})
    else:
        _print_promises(broken)
    if broken:
        raise typer.Exit(1)


def _print_promises(broken: list[Violation]) -> None:
    table = Table("Promise", "Holds", box=box.SIMPLE)
    for promise in (*PROMISES, AUDIT_PROMISE):
        rows = [found.row for found in broken if found.promise == promise]
        said = "[green]yes[/]" if not rows else f"[red]no: {escape(rows[0])}[/]"
        table.add_row(escape(promise), said)
    results.print(table)
    for found in broken:
        results.print(f"{escape(found.promise)}: {escape(found.row)}")
