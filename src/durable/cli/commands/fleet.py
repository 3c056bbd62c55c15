"""`durable fleet load` and `durable fleet show`: declare and show regions, nodes and tenants."""

import uuid
from pathlib import Path
from typing import Annotated

import typer

from durable.authority.db.everywhere import UnreachableRegions
from durable.authority.fleet.manifest import apply_fleet
from durable.authority.reads.census import Census, take_census
from durable.cli.connections import current_user, with_authority
from durable.cli.input.manifests import load_manifest
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import conclude, fail, note_unreachable, progress, results
from durable.cli.render.tables import print_table, show_rounded
from durable.model.fleet.manifest import Fleet
from durable.model.ids import RegionId
from durable.model.resources import ZERO, Resources

app = typer.Typer(no_args_is_help=True)

File = Annotated[Path, typer.Option("--file", "-f", help="A YAML file that declares a fleet.")]


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


def _show(state_dir: Path | None, as_json: bool) -> None:
    census = with_authority(state_dir, take_census)
    note_unreachable(census.unreachable)
    conclude(as_json, census, lambda: print_census(census))


def print_census(census: Census) -> None:
    if not census.regions and not census.unreachable:
        results.print("No region exists yet: load a fleet with `durable fleet load -f FILE`.")
        return
    _print_regions(census)
    _print_tenants(census)


def _print_regions(census: Census) -> None:
    heads = ("Region", "State", "Nodes", "Live", "Capacity", "Used", "Recovery budget")
    rows = [
        (
            region.region.region,
            region.region.state,
            str(sum(pool.nodes for pool in region.pools)),
            str(sum(pool.live for pool in region.pools)),
            show_rounded(region.capacity),
            show_rounded(region.used),
            show_rounded(sum((budget.amount for budget in region.budgets), start=ZERO)),
        )
        for region in census.regions
    ]
    print_table(heads, rows, "Regions")


def _print_tenants(census: Census) -> None:
    regions = [region.region.region for region in census.regions]
    title = (
        "Tenants: hard quota in force, what it is to become, its protected part, and the CPU "
        "granted to each region"
    )
    heads = ("Tenant", "Hard quota", "Target", "Protected", *regions, "Granted", "Used")
    rows: list[list[str]] = []
    for tenant in census.tenants:
        granted = {grant.region: grant.granted for grant in tenant.grants}
        cpu = [show_rounded(Resources.of(granted.get(name, ZERO).cpu_millis)) for name in regions]
        quota = tenant.quota
        limits = map(show_rounded, (quota.hard, quota.target, quota.protected))
        spent = map(show_rounded, (quota.granted, tenant.used))
        rows.append([quota.tenant, *limits, *cpu, *spent])
    print_table(heads, rows, title)
