"""`durable get nodes`, `tenants` and `regions`: what work is placed on, and for whom."""

from typing import Annotated

import typer

from durable.authority.cache.region_read import read_whole
from durable.authority.db.connection import Databases
from durable.authority.reads.census import take_census
from durable.cli.connections import select_regions, with_authority
from durable.cli.input.names import RegionOption, parse_region
from durable.cli.input.options import AsJson, Limit, StateDir
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


def tenants(limit: Limit = 200, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List tenants with their hard quota, and how much of it is granted and used."""

    async def read_rows(databases: Databases) -> list[TenantRow]:
        return [tenant_row(one) for one in (await take_census(databases)).tenants]

    print_rows("tenants", with_authority(state_dir, read_rows), limit, as_json, REMEDY)


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
