"""`durable get nodes`, `tenants` and `regions`: what there is to place work on."""

from typing import Annotated

import typer

from durable.authority.cache.snapshot import read_snapshot
from durable.authority.db.connection import Databases
from durable.authority.reads.census import take_census
from durable.cli.connections import with_authority
from durable.cli.input.filters import Limit, Region, region_named
from durable.cli.input.options import AsJson, StateDir
from durable.cli.input.regions import chosen_regions
from durable.cli.render.fleet import (
    NodeRow,
    RegionRow,
    TenantRow,
    node_row,
    region_row,
    tenant_row,
)
from durable.cli.render.output import fail
from durable.cli.render.tables import print_rows

REMEDY = "load a fleet with durable fleet load -f FILE"


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

    print_rows("nodes", with_authority(state_dir, work), limit, as_json, REMEDY)


def tenants(limit: Limit = 200, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Every tenant: its hard quota, and what its regions were granted and use of it."""

    async def work(databases: Databases) -> list[TenantRow]:
        return [tenant_row(one) for one in (await take_census(databases)).tenants]

    print_rows("tenants", with_authority(state_dir, work), limit, as_json, REMEDY)


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
    dead = [str(row.region) for row in rows if row.nodes and not row.live]
    sentence = (
        f"No node of {', '.join(dead)} has a live lease: check that an agent runs there."
        if live and dead
        else None
    )
    print_rows("regions", rows, limit, as_json, REMEDY, failure=sentence)
    if sentence is not None:
        fail(sentence)
