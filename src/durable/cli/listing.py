"""`durable get`: what there is, in bounded lists."""

from typing import Annotated

import typer

from durable.authority.census import take_census
from durable.authority.connection import Databases
from durable.authority.decisions import read_decisions
from durable.authority.shares import read_shares
from durable.authority.snapshot import read_snapshot
from durable.authority.workloads import list_workloads
from durable.cli.authority import with_authority
from durable.cli.listed import (
    DecisionRow,
    NodeRow,
    PlacementRow,
    RegionRow,
    TenantRow,
    WorkloadListRow,
    node_row,
    placement_row,
    region_row,
    tenant_row,
    workload_row,
)
from durable.cli.listed_regions import chosen_regions
from durable.cli.names import Name, workload_named
from durable.cli.options import AsJson, StateDir
from durable.cli.rows import Limit, Region, Tenant, region_named, show_rows, tenant_named
from durable.stack_record import StackError

app = typer.Typer(no_args_is_help=True, help="What there is: workloads, placements, nodes, ...")


@app.command()
def workloads(
    tenant: Tenant = None,
    ended: Annotated[bool, typer.Option("--ended", help="Those that have ended, too.")] = False,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every workload, and how many of its replicas are bound, ready and serving."""
    whose = tenant_named(tenant)

    async def work(databases: Databases) -> list[WorkloadListRow]:
        found = await list_workloads(databases, whose, deleted=ended)
        shares = [
            share
            for region in await chosen_regions(databases, None)
            for share in await read_shares(databases, region, whose)
        ]
        return [workload_row(one, shares) for one in found]

    rows = with_authority(state_dir, work)
    show_rows("workloads", rows, limit, as_json, "apply one with durable apply -f FILE")


@app.command()
def placements(
    tenant: Tenant = None,
    region: Region = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every region's share of every workload generation, with what it waits for."""
    whose, where = tenant_named(tenant), region_named(region)

    async def work(databases: Databases) -> list[PlacementRow]:
        return [
            placement_row(share)
            for one in await chosen_regions(databases, where)
            for share in await read_shares(databases, one, whose)
        ]

    rows = with_authority(state_dir, work)
    show_rows("placements", rows, limit, as_json, "apply a workload with durable apply -f FILE")


@app.command()
def nodes(
    region: Region = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every node: what it has, what is in use of it, and whether its agent keeps its lease."""
    where = region_named(region)

    async def work(databases: Databases) -> list[NodeRow]:
        rows: list[NodeRow] = []
        for one in await chosen_regions(databases, where):
            snapshot = await read_snapshot(databases, one)
            rows += [node_row(snapshot, node) for node in snapshot.nodes]
        return rows

    rows = with_authority(state_dir, work)
    show_rows("nodes", rows, limit, as_json, "load a fleet with durable fleet load -f FILE")


@app.command()
def tenants(limit: Limit = 200, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Every tenant: its hard quota, and what its regions were granted and use of it."""

    async def work(databases: Databases) -> list[TenantRow]:
        return [tenant_row(one) for one in (await take_census(databases)).tenants]

    rows = with_authority(state_dir, work)
    show_rows("tenants", rows, limit, as_json, "load a fleet with durable fleet load -f FILE")


@app.command()
def regions(
    live: Annotated[
        bool, typer.Option("--live", help="Exit code 1 unless each region has a live node.")
    ] = False,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every region: its epoch and version, its nodes, and how many of them are alive."""

    async def work(databases: Databases) -> list[RegionRow]:
        return [region_row(one) for one in (await take_census(databases)).regions]

    rows = with_authority(state_dir, work)
    show_rows("regions", rows, limit, as_json, "load a fleet with durable fleet load -f FILE")
    dead = [str(row.region) for row in rows if row.nodes and not row.live]
    if live and dead:
        raise StackError(
            f"No node of {', '.join(dead)} has a live lease: check that an agent runs there."
        )


@app.command()
def decisions(
    name: Name,
    region: Region = None,
    last: Annotated[int, typer.Option(min=1, max=1_000, help="How many per region.")] = 20,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """The newest decisions on a workload; durable explain tells each of them in full."""
    tenant, workload = workload_named(name)
    where = region_named(region)

    async def work(databases: Databases) -> list[DecisionRow]:
        return [
            DecisionRow.of(decision)
            for one in await chosen_regions(databases, where)
            for decision in await read_decisions(databases, one, tenant, workload, last=last)
        ]

    rows = with_authority(state_dir, work)
    show_rows("decisions", rows, 10_000, as_json, "see durable get workloads for its name")
