"""`durable get` and `durable queue`: what there is, in bounded lists."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from durable.authority.census import take_census
from durable.authority.connection import Databases
from durable.authority.decisions import read_decisions
from durable.authority.requests import read_queue
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
from durable.cli.node_description import parsed
from durable.cli.options import AsJson, StateDir
from durable.cli.output import print_json, progress, results
from durable.cli.sdk import workload_named
from durable.cli.workloads import Name
from durable.model.ids import RegionId, TenantId
from durable.model.request import QueuedRequest
from durable.model.value import Value
from durable.stack_record import StackError

app = typer.Typer(no_args_is_help=True, help="What there is: workloads, placements, nodes, ...")

Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Region = Annotated[str | None, typer.Option(help="Only of this region.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many rows at most.")]


@app.command()
def workloads(
    tenant: Tenant = None,
    ended: Annotated[bool, typer.Option("--ended", help="Those that have ended, too.")] = False,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every workload, and how many of its replicas are bound, ready and serving."""
    whose = _tenant(tenant)

    async def work(databases: Databases) -> list[WorkloadListRow]:
        found = await list_workloads(databases, whose, deleted=ended)
        shares = [
            share
            for region in await chosen_regions(databases, None)
            for share in await read_shares(databases, region, whose)
        ]
        return [workload_row(one, shares) for one in found]

    rows = with_authority(state_dir, work)
    _show("workloads", rows, limit, as_json, "apply one with durable apply -f FILE")


@app.command()
def placements(
    tenant: Tenant = None,
    region: Region = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every region's share of every workload generation, with what it waits for."""
    whose, where = _tenant(tenant), _region(region)

    async def work(databases: Databases) -> list[PlacementRow]:
        return [
            placement_row(share)
            for one in await chosen_regions(databases, where)
            for share in await read_shares(databases, one, whose)
        ]

    rows = with_authority(state_dir, work)
    _show("placements", rows, limit, as_json, "apply a workload with durable apply -f FILE")


@app.command()
def nodes(
    region: Region = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every node: what it has, what is in use of it, and whether its agent keeps its lease."""
    where = _region(region)

    async def work(databases: Databases) -> list[NodeRow]:
        rows: list[NodeRow] = []
        for one in await chosen_regions(databases, where):
            snapshot = await read_snapshot(databases, one)
            rows += [node_row(snapshot, node) for node in snapshot.nodes]
        return rows

    rows = with_authority(state_dir, work)
    _show("nodes", rows, limit, as_json, "load a fleet with durable fleet load -f FILE")


@app.command()
def tenants(limit: Limit = 200, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Every tenant: its hard quota, and what its regions were granted and use of it."""

    async def work(databases: Databases) -> list[TenantRow]:
        return [tenant_row(one) for one in (await take_census(databases)).tenants]

    rows = with_authority(state_dir, work)
    _show("tenants", rows, limit, as_json, "load a fleet with durable fleet load -f FILE")


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
    _show("regions", rows, limit, as_json, "load a fleet with durable fleet load -f FILE")
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
    where = _region(region)

    async def work(databases: Databases) -> list[DecisionRow]:
        return [
            DecisionRow.of(decision)
            for one in await chosen_regions(databases, where)
            for decision in await read_decisions(databases, one, tenant, workload, last=last)
        ]

    rows = with_authority(state_dir, work)
    _show("decisions", rows, 10_000, as_json, "see durable get workloads for its name")


def queue(region: Region = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Who waits for a place, in the order in which they are served, and what for."""
    where = _region(region)

    async def work(databases: Databases) -> list[QueuedRequest]:
        regions = await chosen_regions(databases, where)
        return [row for one in regions for row in await read_queue(databases, one)]

    rows = with_authority(state_dir, work)
    if as_json:
        print_json({"queue": [row.model_dump(mode="json") for row in rows]})
        return
    if not rows:
        results.print("Nobody waits for a place.")
        return
    columns = ("Region", "Position", "Workload", "Waiting", "Priority", "Age", "Next look")
    table = Table(*columns, "Waits for", box=box.SIMPLE)
    for row in rows:
        look = (
            "at the next wakeup" if row.next_retry_at is None else f"{row.next_retry_at:%H:%M:%S}Z"
        )
        of = f"{row.tenant}/{row.workload} g{row.generation}"
        cells = (row.region, row.position, of, row.waiting, row.priority)
        ages = (f"{row.age_seconds:.0f} s", look, row.pending_reason or "")
        table.add_row(*(escape(str(cell)) for cell in (*cells, *ages)))
    results.print(table)


def _show(what: str, rows: Sequence[Value], limit: int, as_json: bool, remedy: str) -> None:
    shown = rows[:limit]
    if as_json:
        print_json({what: [row.model_dump(mode="json") for row in shown], "total": len(rows)})
        return
    if not rows:
        results.print(f"There are no {what} yet: {remedy}.")
        return
    columns = [name for name in type(rows[0]).model_fields if name not in _ONLY_JSON]
    heads = (name.replace("_", " ").capitalize() for name in columns)
    table = Table(*heads, box=box.SIMPLE)
    for row in shown:
        table.add_row(*(escape(_cell(getattr(row, name))) for name in columns))
    results.print(table)
    if len(rows) > limit:
        progress.print(f"and {len(rows) - limit:,} more: raise --limit, or name less")


_ONLY_JSON = frozenset({"slots", "grants", "labels", "taints"})


def _cell(value: object) -> str:
    return (
        "" if value is None else "yes" if value is True else "no" if value is False else str(value)
    )


def _tenant(text: str | None) -> TenantId | None:
    return None if text is None else parsed("--tenant", TenantId, text)


def _region(text: str | None) -> RegionId | None:
    return None if text is None else parsed("--region", RegionId, text)
