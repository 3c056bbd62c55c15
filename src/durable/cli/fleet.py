"""`durable fleet load` and `durable fleet show`: the regions, nodes and tenants there are."""

import uuid
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from durable.authority.census import Census, take_census
from durable.authority.fleet import apply_fleet
from durable.cli.authority import person, with_authority
from durable.cli.manifest import load_manifest
from durable.cli.options import AsJson, StateDir
from durable.cli.output import print_json, progress, results
from durable.model.fleet import Fleet
from durable.model.resources import ZERO, Resources

app = typer.Typer(no_args_is_help=True, help="The regions, nodes and tenants there are.")

File = Annotated[Path, typer.Option("--file", "-f", help="A fleet manifest (YAML).")]


@app.command()
def load(file: File, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Add and change what a manifest declares; what it does not name is left and told."""
    fleets = load_manifest(file, Fleet)
    load_fleets(fleets, state_dir)
    _show(state_dir, as_json)


@app.command()
def show(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show the regions with their pools and recovery budgets, and the tenants."""
    _show(state_dir, as_json)


def load_fleets(fleets: list[Fleet], state_dir: Path | None) -> None:
    for fleet in fleets:
        with_authority(
            state_dir,
            lambda databases, fleet=fleet: apply_fleet(
                databases,
                fleet,
                actor=person(),
                request=f"fleet/{uuid.uuid4()}",
                report=lambda line: progress.print(f"[green]✓[/] {line}"),
            ),
        )


def _show(state_dir: Path | None, as_json: bool) -> None:
    census = with_authority(state_dir, take_census)
    if as_json:
        print_json(census)
    else:
        print_census(census)


def print_census(census: Census) -> None:
    if not census.regions:
        results.print("There is no region yet: load a manifest with durable fleet load -f FILE.")
        return
    results.print(_regions(census))
    results.print(_tenants(census))


def _regions(census: Census) -> Table:
    columns = ("Region", "State", "Nodes", "Agents", "Capacity", "In use", "For recovery")
    table = Table(*columns, title="Regions", title_justify="left", box=box.SIMPLE)
    for region in census.regions:
        table.add_row(
            region.region.region,
            region.region.state,
            str(sum(pool.nodes for pool in region.pools)),
            str(sum(pool.live for pool in region.pools)),
            str(region.capacity),
            _amount(region.used),
            _amount(sum((budget.amount for budget in region.budgets), start=ZERO)),
        )
    return table


def _tenants(census: Census) -> Table:
    regions = [region.region.region for region in census.regions]
    title = "Tenants: hard quota, its protected part, and the cpu granted to each region"
    columns = ("Tenant", "Hard quota", "Protected", *regions, "In use")
    table = Table(*columns, title=title, title_justify="left", box=box.SIMPLE)
    for tenant in census.tenants:
        granted = {grant.region: grant.granted for grant in tenant.grants}
        table.add_row(
            tenant.quota.tenant,
            str(tenant.quota.hard),
            _amount(tenant.quota.protected),
            *(_amount(Resources.of(granted.get(name, ZERO).cpu_millis)) for name in regions),
            _amount(tenant.used),
        )
    return table


def _amount(amount: Resources) -> str:
    return "none" if amount.is_zero else str(amount)
