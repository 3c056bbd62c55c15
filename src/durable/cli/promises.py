"""`durable promises`: asks the authority whether each of its promises holds right now."""

import typer
from rich.markup import escape
from rich.table import Table

from durable.authority.invariants import PROMISES, Violation, violations_everywhere
from durable.cli.authority import with_authority
from durable.cli.options import AsJson, StateDir
from durable.cli.output import print_json, results


def promises(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Recompute every invariant from the claims; exit code 1 if one does not hold."""
    broken = with_authority(state_dir, violations_everywhere)
    if as_json:
        shown = [{"promise": found.promise, "row": found.row} for found in broken]
        print_json({"holds": not broken, "promises": list(PROMISES), "violations": shown})
    else:
        _print_promises(broken)
    if broken:
        raise typer.Exit(1)


def _print_promises(broken: list[Violation]) -> None:
    rows = {found.promise: found.row for found in broken}
    table = Table("Promise", "Holds")
    for promise in dict.fromkeys([*PROMISES, *rows]):
        row = rows.get(promise)
        table.add_row(
            escape(promise), "[green]yes[/]" if row is None else f"[red]no: {escape(row)}[/]"
        )
    results.print(table)
