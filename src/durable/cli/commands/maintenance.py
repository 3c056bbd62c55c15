"""`durable doctor`, `migrate`, `reconcile`, `restored`: keep databases and workflows in order."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import UnreachableRegions
from durable.authority.reads.across import ACROSS
from durable.authority.reads.invariants import (
    AUDIT_INVARIANT,
    INVARIANTS,
    NOT_APPLICABLE,
    Violation,
    check_invariants,
)
from durable.authority.restores.declared import RestoreReport, declare_restored
from durable.cli.connections import current_user, with_authority, with_durable
from durable.cli.input.options import (
    AsJson,
    StateDir,
    flag,
    load_settings,
    parse_option,
    parse_region,
)
from durable.cli.render.output import conclude, print_findings, progress, results, say
from durable.cli.render.tables import print_table
from durable.model.fleet.restores import RestoredSide
from durable.settings import Settings
from durable.state_dir.record import StackError
from durable.validation.text import PLAIN_TEXT, counted

if TYPE_CHECKING:
    from durable.client import Durable
    from durable.controllers.reconciler import UnmanagedWorkflows
    from durable.health.findings import HealthFinding


def doctor(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    settings = load_settings(state_dir)

    async def look(
        databases: Databases,
    ) -> "tuple[list[Violation], UnreachableRegions, list[HealthFinding]]":
        # Imported here: `durable doctor --help` must not load Temporal.
        from durable.health.diagnosis import diagnose

        address, unknown = _temporal_address(settings)
        found = await diagnose(settings, databases, address)
        checked = await check_invariants(databases)
        if unknown is not None:
            progress.print(f"Workflows were not checked: {escape(unknown)}")
        return *checked, found

    violations, unreachable, found = with_authority(state_dir, look)
    checked = _by_invariant(violations)
    broken = _broken(checked, unreachable)
    conclude(
        as_json,
        {
            "holds": broken is None,
            "invariants": [
                {"invariant": invariant, "holds": not rows, "violations": rows}
                for invariant, rows in checked.items()
            ],
            "not_applicable": NOT_APPLICABLE,
            "findings": found,
        },
        lambda: (_print_invariants(checked), print_findings(found)),
        unreachable=unreachable,
        failure=broken or (_wrong(found) if found else None),
        code="unhealthy" if broken is None else "broken_invariant",
    )


def _temporal_address(settings: Settings) -> tuple[str | None, str | None]:
    """The address, or why these settings know of none."""
    try:
        return settings.require_temporal_address(), None
    except StackError as error:
        return None, str(error)


def _wrong(found: "Sequence[HealthFinding]") -> str:
    more = f" ({counted(len(found) - 1, 'further finding')})" if len(found) > 1 else ""
    return f"{found[0]}{more}"


def _by_invariant(violations: Sequence[Violation]) -> dict[str, list[str]]:
    """The violating rows of every invariant, also of those that hold."""
    return {
        invariant: [found.row for found in violations if found.invariant == invariant]
        for invariant in (*INVARIANTS, *ACROSS, AUDIT_INVARIANT)
    }


def _broken(checked: Mapping[str, Sequence[str]], unreachable: UnreachableRegions) -> str | None:
    violated = [invariant for invariant, rows in checked.items() if rows]
    if not violated and unreachable:
        return f"{', '.join(unreachable)} could not be checked; every other region was."
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


def migrate(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    # Imported here: only this command needs what migrates.
    from durable.authority.migrations import head_revision, upgrade_all

    settings = load_settings(state_dir)
    home, regional = settings.require_database_url(), settings.known_regional_urls()
    count, unreachable = upgrade_all(home, regional, current_user())
    subject = f"{count} databases are" if count > 1 else "The database is"
    failure = f"The database of {', '.join(unreachable)} was not migrated."
    conclude(
        as_json,
        {"revision": head_revision(), "databases": count},
        say(f"{subject} at revision {head_revision()}."),
        unreachable=unreachable,
        failure=failure if unreachable else None,
        code="authority",
    )


def reconcile(state_dir: StateDir = None, as_json: AsJson = False) -> None:

    async def start_missing(durable: "Durable") -> "UnmanagedWorkflows":
        # Imported here: the other two work without Temporal.
        from durable.controllers.reconciler import Reconciler

        reconciler = Reconciler(durable.client, durable.databases)
        progress.print("Comparing the authority with the workflows that run ...")
        unmanaged = await reconciler.unmanaged(await reconciler.running())
        if unmanaged.ids:
            progress.print(f"Starting {counted(len(unmanaged.ids), 'workflow')} ...")
        await reconciler.start(unmanaged)
        return unmanaged

    started = with_durable(state_dir, start_missing)
    unreachable = started.unreachable
    failure = f"{', '.join(unreachable)} could not be compared; every other region was."
    nothing = say("Nothing to do: every workload and placement has a workflow that runs.")
    rows = [[name] for name in started.ids]
    conclude(
        as_json,
        {"started": started.ids},
        (lambda: print_table(["Started again"], rows)) if rows else nothing,
        unreachable=unreachable,
        failure=failure if unreachable else None,
        code="unreachable",
    )


def restored(
    region: Annotated[
        str | None, typer.Argument(metavar="REGION", help="A region with its own database.")
    ] = None,
    is_global: Annotated[
        bool, flag("--global", help="The global side, with the regions beside it.")
    ] = False,
    is_all: Annotated[bool, flag("--all", help="Every database.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="What was restored and why, for the audit.")
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    if (region is not None) + is_global + is_all != 1:
        raise typer.BadParameter("name one: REGION, --global or --all", param_hint="REGION")
    if reason is None:
        raise typer.BadParameter("say what was restored and why", param_hint="--reason")
    why = parse_option("--reason", PLAIN_TEXT.validate_python, reason)
    side = RestoredSide(region=parse_region(region), is_all=is_all)

    async def declare(databases: Databases) -> RestoreReport:
        return await declare_restored(databases, side, actor=current_user(), reason=why)

    done = with_authority(state_dir, declare)
    conclude(as_json, {"restored": done}, say(_sentence(done)))


def _sentence(done: RestoreReport) -> str:
    sentences = [
        f"Restored: {', '.join(done.regions)} is fenced and opens by itself when nothing of others "
        "is left there; follow it with `durable get regions`."
    ]
    if done.left_fenced:
        sentences.append(f"Recoveries had fenced {', '.join(done.left_fenced)}, and open it.")
    if done.unreachable:
        names = ", ".join(done.unreachable)
        sentences.append(
            f"Not in reach: {names}. When it answers again, it changes nothing until you run "
            f"`durable restored {done.unreachable[0]} --reason ...`."
        )
    if done.lost:
        sentences.append(
            f"Lost with the restore and being stopped: {', '.join(done.lost)}. Apply them again if "
            "they are wanted."
        )
    return " ".join(sentences)
