"""`durable doctor`: whether every invariant holds, and whether work could go on, right now."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import Missing
from durable.authority.reads.invariants import (
    AUDIT_INVARIANT,
    INVARIANTS,
    NOT_APPLICABLE,
    Violation,
    check_invariants,
)
from durable.cli.connections import with_authority
from durable.cli.input.options import AsJson, StateDir, load_settings
from durable.cli.render.findings import print_findings
from durable.cli.render.output import (
    error_object,
    fail,
    missing_object,
    note_missing,
    print_json,
    progress,
    results,
)
from durable.settings import Settings
from durable.state_dir.record import StackError
from durable.validation.text import counted

if TYPE_CHECKING:
    from durable.health.findings import HealthFinding


def doctor(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Check every invariant, and that work could go on; exit with 1 if anything is wrong."""
    settings = load_settings(state_dir)

    async def look(databases: Databases) -> "tuple[list[Violation], Missing, list[HealthFinding]]":
        # Imported here: `durable doctor --help` must not load Temporal.
        from durable.health.diagnosis import diagnose

        address, unknown = _temporal_address(settings)
        found = await diagnose(settings, databases, address)
        checked = await check_invariants(databases)
        if unknown is not None:
            progress.print(f"Workflows were not checked: {escape(unknown)}")
        return *checked, found

    violations, missing, found = with_authority(state_dir, look)
    checked = _by_invariant(violations)
    failure = _failure_of(checked, missing)
    note_missing(missing)
    if as_json:
        invariants = [
            {"invariant": invariant, "holds": not rows, "violations": rows}
            for invariant, rows in checked.items()
        ]
        content = {
            "holds": failure is None,
            "invariants": invariants,
            "not_applicable": NOT_APPLICABLE,
            "findings": [one.model_dump(mode="json") for one in found],
            **missing_object(missing),
        }
        print_json({**content, **_error(failure, found)})
    else:
        _print_invariants(checked)
        print_findings(found)
    if failure is not None or found:
        fail(failure or _wrong(found))


def _temporal_address(settings: Settings) -> tuple[str | None, str | None]:
    """The address, or why these settings know of none."""
    try:
        return settings.require_temporal_address(), None
    except StackError as error:
        return None, str(error)


def _error(failure: str | None, found: "Sequence[HealthFinding]") -> dict[str, Any]:
    if failure is not None:
        return error_object("broken_invariant", failure)
    return error_object("unhealthy", _wrong(found) if found else None)


def _wrong(found: "Sequence[HealthFinding]") -> str:
    more = f" ({counted(len(found) - 1, 'further finding')})" if len(found) > 1 else ""
    return f"{found[0]}{more}"


def _by_invariant(violations: Sequence[Violation]) -> dict[str, list[str]]:
    """The violating rows of every invariant, also of those that hold."""
    return {
        invariant: [found.row for found in violations if found.invariant == invariant]
        for invariant in (*INVARIANTS, AUDIT_INVARIANT)
    }


def _failure_of(checked: Mapping[str, Sequence[str]], missing: Missing) -> str | None:
    violated = [invariant for invariant, rows in checked.items() if rows]
    if not violated and missing:
        return f"{', '.join(missing)} could not be checked; every other region was."
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
    for invariant, why in NOT_APPLICABLE.items():
        table.add_row(escape(invariant), "[dim]n/a[/]", escape(why))
    results.print(table)
