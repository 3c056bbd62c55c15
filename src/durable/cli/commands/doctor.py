"""`durable doctor`: asks the authority whether each of its invariants holds right now."""

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from durable.authority.reads.invariants import (
    AUDIT_INVARIANT,
    INVARIANTS,
    Violation,
    violations_everywhere,
)
from durable.cli.connections import with_authority
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import error_object, print_json, results


def doctor(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Check every invariant against the recorded claims; exit with 1 if one is violated."""
    broken = with_authority(state_dir, violations_everywhere)
    if as_json:
        shown = [{"invariant": found.invariant, "row": found.row} for found in broken]
        told = {
            "holds": not broken,
            "invariants": [*INVARIANTS, AUDIT_INVARIANT],
            "violations": shown,
        }
        first = f"{broken[0].invariant}: {broken[0].row}" if broken else None
        print_json({**told, **error_object("broken_invariant", first)})
    else:
        _print_invariants(broken)
    if broken:
        raise typer.Exit(1)


def _print_invariants(broken: list[Violation]) -> None:
    table = Table("Invariant", "Holds", box=box.SIMPLE)
    for invariant in (*INVARIANTS, AUDIT_INVARIANT):
        rows = [found.row for found in broken if found.invariant == invariant]
        said = "[green]yes[/]" if not rows else f"[red]no: {escape(rows[0])}[/]"
        table.add_row(escape(invariant), said)
    results.print(table)
    for found in broken:
        results.print(f"{escape(found.invariant)}: {escape(found.row)}")
