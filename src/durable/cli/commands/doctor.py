"""`durable doctor`: checks whether every invariant of the authority holds right now."""

from collections.abc import Mapping, Sequence

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
from durable.cli.render.output import counted, error_object, fail, print_json, results


def doctor(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Check every invariant against the recorded claims; exit with 1 if one is violated."""
    checked = _by_invariant(with_authority(state_dir, violations_everywhere))
    failure = _failure_of(checked)
    if as_json:
        invariants = [
            {"invariant": invariant, "holds": not rows, "violations": rows}
            for invariant, rows in checked.items()
        ]
        content = {"holds": failure is None, "invariants": invariants}
        print_json({**content, **error_object("broken_invariant", failure)})
    else:
        _print_invariants(checked)
    if failure is not None:
        fail(failure)


def _by_invariant(violations: Sequence[Violation]) -> dict[str, list[str]]:
    """The violating rows of every invariant, also of those that hold."""
    return {
        invariant: [found.row for found in violations if found.invariant == invariant]
        for invariant in (*INVARIANTS, AUDIT_INVARIANT)
    }


def _failure_of(checked: Mapping[str, Sequence[str]]) -> str | None:
    violated = [invariant for invariant, rows in checked.items() if rows]
    if not violated:
        return None
    return (
        f"{counted(len(violated), 'invariant')} violated, first: {violated[0]}; "
        "see runbooks/invariant-broken.md."
    )


def _print_invariants(checked: Mapping[str, Sequence[str]]) -> None:
    table = Table("Invariant", "Holds", "Violations", box=box.SIMPLE)
    for invariant, rows in checked.items():
        holds = "[red]no[/]" if rows else "[green]yes[/]"
        table.add_row(escape(invariant), holds, escape("\n".join(rows)))
    results.print(table)
