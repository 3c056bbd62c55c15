"""`durable get`: what exists, in bounded lists."""

from typing import Annotated

import typer

from durable.authority.cache.region_read import read_whole
from durable.authority.db.connection import Databases
from durable.authority.queue.decisions import read_decisions
from durable.authority.quota.quotas import read_quota
from durable.authority.reads.census import take_census
from durable.authority.reads.shares import read_shares
from durable.authority.workloads.rows import list_workloads
from durable.cli.connections import select_regions, with_authority
from durable.cli.input.options import (
    EXAMPLE,
    AsJson,
    Limit,
    RegionOption,
    StateDir,
    TenantOption,
    parse_region,
    parse_tenant,
    parse_workload,
)
from durable.cli.render.fleet import (
    NodeRow,
    RegionRow,
    TenantRow,
    node_row,
    region_row,
    tenant_row,
)
from durable.cli.render.output import counted, fail, progress, scope_of
from durable.cli.render.tables import print_rows
from durable.cli.render.workloads import (
    DecisionRow,
    PlacementRow,
    WorkloadSummary,
    key_of,
    placement_row,
    workload_row,
)
from durable.explain.explain import require_workload
from durable.model.ids import TenantId
from durable.model.workload import WorkloadKind

app = typer.Typer(
    no_args_is_help=True, help="List workloads, placements, decisions, nodes, tenants or regions."
)


@app.command()
def workloads(
    tenant: TenantOption = None,
    include_ended: Annotated[
        bool, typer.Option("--all", "--ended", help="Include ended jobs and deleted workloads.")
    ] = False,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List workloads with their phase and replica counts."""
    tenant_id = parse_tenant(tenant)

    async def read_rows(databases: Databases) -> tuple[list[WorkloadSummary], int]:
        live = await list_workloads(databases, tenant_id)
        # Read separately, so that no number of ended workloads can push out a live one.
        skip_ended = as_json and not include_ended
        read = [] if skip_ended else await list_workloads(databases, tenant_id, deleted=True)
        ended = [one for one in read if one.deleted]
        if not live and not ended:
            await _refuse_unknown(databases, tenant_id)
        # A job's completed replicas count even in a region whose share has ended.
        jobs = [key_of(one) for one in live if one.spec.kind is WorkloadKind.JOB]
        shares = [
            share
            for region in await select_regions(databases)
            for share in await read_shares(databases, region, tenant_id, also=jobs)
        ]
        listed = [*live, *ended] if include_ended else live
        return [workload_row(one, shares) for one in listed], 0 if include_ended else len(ended)

    rows, hidden = with_authority(state_dir, read_rows)
    if rows or not hidden:
        remedy = "create one with durable apply -f FILE"
        print_rows("workloads", rows, limit, as_json, remedy, scope=scope_of(tenant_id))
    if hidden:
        note = f"{counted(hidden, 'workload')} ended: see durable get workloads --all"
        progress.print(f"and {note}" if rows else f"No workloads; {note}")


@app.command()
def placements(
    tenant: TenantOption = None,
    region: RegionOption = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List each region's share of each workload, what it waits for, and who holds it."""
    tenant_id, region_id = parse_tenant(tenant), parse_region(region)

    async def read_rows(databases: Databases) -> list[PlacementRow]:
        shares = [
            share
            for one in await select_regions(databases, region_id)
            for share in await read_shares(databases, one, tenant_id)
        ]
        if not shares:
            await _refuse_unknown(databases, tenant_id)
        return [placement_row(share) for share in shares]

    rows = with_authority(state_dir, read_rows)
    remedy = "create a workload with durable apply -f FILE"
    print_rows("placements", rows, limit, as_json, remedy, scope=scope_of(tenant_id, region_id))


async def _refuse_unknown(databases: Databases, tenant: TenantId | None) -> None:
    """Tells a tenant without workloads from a tenant that does not exist."""
    if tenant is not None:
        await read_quota(databases, tenant)


@app.command()
def decisions(
    name: Annotated[
        str | None,
        typer.Argument(metavar="TENANT/NAME", help=f"The workload, such as {EXAMPLE}; required."),
    ] = None,
    region: RegionOption = None,
    last: Annotated[int, typer.Option(min=1, max=1_000, help="How many per region.")] = 20,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the latest scheduling decisions on a workload; durable explain shows them in full."""
    if name is None:
        raise typer.BadParameter(
            f"name the workload: durable get decisions {EXAMPLE}; durable get workloads lists them",
            param_hint="TENANT/NAME",
        )
    tenant, workload = parse_workload(name)
    region_id = parse_region(region)

    async def read_rows(databases: Databases) -> list[DecisionRow]:
        await require_workload(databases, tenant, workload)
        return [
            DecisionRow.of(decision)
            for one in await select_regions(databases, region_id)
            for decision in await read_decisions(databases, one, tenant, workload, last=last)
        ]

    rows = with_authority(state_dir, read_rows)
    remedy = f"durable explain {name} shows what it waits for"
    on = f" on {name}{scope_of(None, region_id)}"
    print_rows("decisions", rows, 10_000, as_json, remedy, scope=on)


REMEDY = "load a fleet with durable fleet load -f FILE"


@app.command()
def nodes(
    region: RegionOption = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List nodes with their capacity, their use, and whether their lease is live."""
    region_id = parse_region(region)

    async def read_rows(databases: Databases) -> list[NodeRow]:
        rows: list[NodeRow] = []
        for one in await select_regions(databases, region_id):
            read = await read_whole(databases, one)
            rows += [node_row(read, node) for node in read.nodes]
        return rows

    print_rows("nodes", with_authority(state_dir, read_rows), limit, as_json, REMEDY)


@app.command()
def tenants(limit: Limit = 200, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List tenants with their hard quota, and how much of it is granted and used."""

    async def read_rows(databases: Databases) -> list[TenantRow]:
        return [tenant_row(one) for one in (await take_census(databases)).tenants]

    print_rows("tenants", with_authority(state_dir, read_rows), limit, as_json, REMEDY)


@app.command()
def regions(
    live: Annotated[
        bool, typer.Option("--live", help="Exit with 1 unless every region has a live node.")
    ] = False,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List regions with their epoch and version, and how many of their nodes are live."""

    async def read_rows(databases: Databases) -> list[RegionRow]:
        return [region_row(one) for one in (await take_census(databases)).regions]

    rows = with_authority(state_dir, read_rows)
    dead = [str(row.region) for row in rows if row.nodes and not row.live]
    sentence = (
        f"No node in {', '.join(dead)} has a live lease: check that an agent runs there."
        if live and dead
        else None
    )
    print_rows("regions", rows, limit, as_json, REMEDY, failure=sentence)
    if sentence is not None:
        fail(sentence)
