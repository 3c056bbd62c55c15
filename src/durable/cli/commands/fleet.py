"""`durable fleet load` and `durable fleet show`: declare and show regions, nodes and tenants."""

import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from durable.authority.db.everywhere import UnreachableRegions
from durable.authority.fleet.manifest import apply_fleet
from durable.authority.reads.census import take_census
from durable.cli.connections import current_user, with_authority, with_reader
from durable.cli.input.manifests import load_manifest
from durable.cli.input.options import AsJson, StateDir, path_option
from durable.cli.render.output import fail, note_unreachable, print_json, progress, results
from durable.cli.render.tables import print_rows
from durable.model.fleet.manifest import Fleet
from durable.model.ids import RegionId
from durable.resources.reader import Reader
from durable.resources.resource import Filters, Resource, Rows
from durable.resources.table import BUDGETS, GRANTS, REGIONS, TENANTS

app = typer.Typer(no_args_is_help=True)

File = Annotated[Path, path_option("--file", "-f", help="A YAML file that declares a fleet.")]


@app.command()
def load(file: File, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Create and change what a manifest declares; what it does not name stays as it is."""
    fleets = load_manifest(file, Fleet)
    unreachable = load_fleets(fleets, state_dir)
    _show(state_dir, as_json)
    if unreachable:
        fail(not_loaded(unreachable))


@app.command()
def show(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show regions with their capacity and recovery budgets, and tenants with their quotas."""
    _show(state_dir, as_json)


def load_fleets(fleets: list[Fleet], state_dir: Path | None) -> UnreachableRegions:
    """Loads what can be loaded; answers the regions that could not."""
    unreachable: dict[RegionId, str] = {}
    for fleet in fleets:
        unreachable |= with_authority(
            state_dir,
            lambda databases, fleet=fleet: apply_fleet(
                databases,
                fleet,
                actor=current_user(),
                request=f"fleet/{uuid.uuid4()}",
                report=lambda line: progress.print(f"[green]✓[/] {line}"),
            ),
        )
    return unreachable


def not_loaded(unreachable: UnreachableRegions) -> str:
    """What to do about regions that did not answer."""
    regions = ", ".join(sorted(unreachable))
    return (
        f"Nothing was loaded into {regions}, nor was grant moved there, because the database did "
        "not answer; everything else was loaded. Load the same file again when it answers."
    )


# What a fleet is, in the order in which it is shown.
_LISTS: tuple[Resource[Any], ...] = (REGIONS, BUDGETS, TENANTS, GRANTS)


def _show(state_dir: Path | None, as_json: bool) -> None:
    if as_json:
        census = with_authority(state_dir, take_census)
        note_unreachable(census.unreachable)
        print_json(census)
    else:
        print_fleet(state_dir)


def print_fleet(state_dir: Path | None) -> None:
    """The same lists as `durable get` has them, read with one connection."""

    async def read(reader: Reader) -> list[Rows[Any]]:
        return [await reader.get(one) for one in _LISTS]

    lists = with_reader(state_dir, read)
    note_unreachable({region: why for rows in lists for region, why in rows.unreachable.items()})
    # Without a region there is nothing else, either.
    shown = lists if lists[0].rows else lists[:1]
    for resource, rows in zip(_LISTS, shown, strict=False):
        if rows.rows:
            results.print(resource.name.capitalize())
        print_rows(resource, rows, Filters())
