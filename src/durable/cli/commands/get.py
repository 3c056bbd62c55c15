"""`durable get`: what exists, in bounded lists."""

from collections.abc import Mapping
from typing import Annotated

import typer

from durable.authority.cache.region_read import read_whole
from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import Missing, ask_regions
from durable.authority.drains.progress import read_progress
from durable.authority.drains.rows import read_drains
from durable.authority.overrides.reads import drawn_on, read_effects
from durable.authority.overrides.rows import read_overrides
from durable.authority.queue.decisions import read_decisions
from durable.authority.quota.quotas import read_quota
from durable.authority.reads.census import Census, take_census
from durable.authority.reads.shares import read_shares
from durable.authority.reads.wanted import read_wanted
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_facts
from durable.authority.workloads.rows import list_workloads
from durable.cli.connections import look_at_workflows, select_regions, with_authority
from durable.cli.input.options import (
    EXAMPLE,
    AsJson,
    Limit,
    RegionOption,
    StateDir,
    TenantOption,
    flag,
    parse_region,
    parse_tenant,
    parse_workload,
)
from durable.cli.render.drains import DrainRow, drain_row
from durable.cli.render.fleet import (
    BudgetRow,
    NodeRow,
    RegionRow,
    TenantRow,
    budget_row,
    grant_row,
    node_row,
    region_row,
    tenant_row,
)
from durable.cli.render.output import fail, progress, scope_of
from durable.cli.render.overrides import OverrideRow, override_row
from durable.cli.render.problems import placement_problem, workload_problem
from durable.cli.render.recoveries import RecoveryRow, recovery_row
from durable.cli.render.tables import print_rows
from durable.cli.render.workloads import (
    DecisionRow,
    PlacementRow,
    WorkloadSummary,
    key_of,
    placement_of,
    placement_row,
    unrecorded_row,
    workload_row,
)
from durable.explain.explain import require_workload
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import RegionId, TenantId
from durable.model.work.workload import WorkloadKind
from durable.plan.grants import report_grants
from durable.signals.names import region_of
from durable.validation.text import counted

app = typer.Typer(
    no_args_is_help=True,
    help="List workloads, placements, decisions, nodes, drains, overrides and others.",
)


@app.command()
def workloads(
    tenant: TenantOption = None,
    include_ended: Annotated[
        bool, flag("--all", "--ended", help="Include ended jobs and deleted workloads.")
    ] = False,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List workloads with their phase and replica counts."""
    tenant_id = parse_tenant(tenant)

    async def read_rows(databases: Databases) -> tuple[list[WorkloadSummary], int, Missing]:
        live = await list_workloads(databases, tenant_id)
        # Read separately, so that no number of ended workloads can push out a live one.
        skip_ended = as_json and not include_ended
        ended = [] if skip_ended else await list_workloads(databases, tenant_id, deleted=True)
        if not live and not ended:
            await _refuse_unknown(databases, tenant_id)
        # A job's completed replicas count even in a region whose share has ended.
        jobs = [key_of(one) for one in live if one.spec.kind is WorkloadKind.JOB]
        answers = await ask_regions(
            await select_regions(databases),
            lambda region: read_shares(databases, region, tenant_id, also=jobs),
        )
        shares = [share for found in answers.by_region.values() for share in found]
        wanted = await read_wanted(databases, tenant_id)
        misplaced = {(one.tenant, one.workload): one.misplaced for one in wanted}
        health = await look_at_workflows(state_dir, databases, tenant_id)
        rows = [
            workload_row(
                one,
                shares,
                misplaced=misplaced.get((one.tenant, one.workload), 0),
                problem=workload_problem(one, health),
            )
            for one in ([*live, *ended] if include_ended else live)
        ]
        return rows, 0 if include_ended else len(ended), answers.missing

    rows, hidden, missing = with_authority(state_dir, read_rows)
    if rows or not hidden:
        remedy = "create one with `durable apply -f FILE`"
        scope = scope_of(tenant_id)
        print_rows("workloads", rows, limit, as_json, remedy, scope=scope, missing=missing)
    if hidden:
        note = f"{counted(hidden, 'workload')} ended: see `durable get workloads --all`"
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

    async def read_rows(databases: Databases) -> tuple[list[PlacementRow], Missing]:
        answers = await ask_regions(
            await select_regions(databases, region_id),
            lambda one: read_shares(databases, one, tenant_id),
        )
        shares = [share for found in answers.by_region.values() for share in found]
        health = await look_at_workflows(state_dir, databases, tenant_id)
        rows = [placement_row(one, placement_problem(placement_of(one), health)) for one in shares]
        known = {row.placement for row in rows}
        rows += [
            unrecorded_row(id, region_of(id), placement_problem(id, health))
            for id in (() if health is None else health.troubled_placements)
            if id not in known and region_id in (None, region_of(id))
        ]
        if not rows:
            await _refuse_unknown(databases, tenant_id)
        return rows, answers.missing

    rows, missing = with_authority(state_dir, read_rows)
    remedy = "create a workload with `durable apply -f FILE`"
    scope = scope_of(tenant_id, region_id)
    print_rows("placements", rows, limit, as_json, remedy, scope=scope, missing=missing)


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
            f"name the workload: `durable get decisions {EXAMPLE}`; `durable get workloads` lists "
            "them",
            param_hint="TENANT/NAME",
        )
    tenant, workload = parse_workload(name)
    region_id = parse_region(region)

    async def read_rows(databases: Databases) -> tuple[list[DecisionRow], Missing]:
        await require_workload(databases, tenant, workload)
        answers = await ask_regions(
            await select_regions(databases, region_id),
            lambda one: read_decisions(databases, one, tenant, workload, last=last),
        )
        found = [DecisionRow.of(made) for read in answers.by_region.values() for made in read]
        return found, answers.missing

    rows, missing = with_authority(state_dir, read_rows)
    remedy = f"`durable explain {name}` shows what it waits for"
    on = f" on {name}{scope_of(None, region_id)}"
    print_rows("decisions", rows, 10_000, as_json, remedy, scope=on, missing=missing)


REMEDY = "load a fleet with `durable fleet load -f FILE`"


@app.command()
def nodes(
    region: RegionOption = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List nodes with their capacity, their use, and whether their lease is live."""
    region_id = parse_region(region)

    async def read_rows(databases: Databases) -> tuple[list[NodeRow], Missing]:
        answers = await ask_regions(
            await select_regions(databases, region_id), lambda one: read_whole(databases, one)
        )
        rows = [node_row(read, node) for read in answers.by_region.values() for node in read.nodes]
        return rows, answers.missing

    rows, missing = with_authority(state_dir, read_rows)
    print_rows("nodes", rows, limit, as_json, REMEDY, missing=missing)


@app.command()
def drains(
    region: RegionOption = None,
    include_ended: Annotated[bool, flag("--all", "--ended", help="Include those that ended.")] = (
        False
    ),
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List drains with how many replicas they have moved, and what they wait for."""
    region_id = parse_region(region)

    async def read_region(databases: Databases, one: RegionId) -> list[DrainRow]:
        found = await read_drains(databases, one, ended=limit if include_ended else 0)
        return [drain_row(drain, await read_progress(databases, one, drain)) for drain in found]

    async def read_rows(databases: Databases) -> tuple[list[DrainRow], Missing]:
        answers = await ask_regions(
            await select_regions(databases, region_id), lambda one: read_region(databases, one)
        )
        return [row for rows in answers.by_region.values() for row in rows], answers.missing

    rows, missing = with_authority(state_dir, read_rows)
    remedy = "begin one with `durable drain NODE`; --all lists those that ended"
    print_rows("drains", rows, limit, as_json, remedy, missing=missing)


@app.command()
def overrides(
    include_ended: Annotated[bool, flag("--all", "--ended", help="Include those that ended.")] = (
        False
    ),
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List overrides with who proposed them, the time left, and their effect so far."""

    async def read_rows(databases: Databases) -> tuple[list[OverrideRow], Missing]:
        answers = await ask_regions(
            await select_regions(databases), lambda one: read_effects(databases, one)
        )
        used = drawn_on(answers.by_region.values())
        ended = limit if include_ended else 0
        found = await read_overrides(databases, ended=ended, also=used)
        now = await read_time(databases)
        return [override_row(one, answers.by_region, now) for one in found], answers.missing

    rows, missing = with_authority(state_dir, read_rows)
    remedy = "propose one with `durable override create KIND`; --all lists those that ended"
    print_rows("overrides", rows, limit, as_json, remedy, missing=missing)


@app.command()
def recoveries(
    include_ended: Annotated[bool, flag("--all", "--ended", help="Include those that ended.")] = (
        False
    ),
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the recoveries of lost regions, the newest first."""

    async def read_rows(databases: Databases) -> list[RecoveryRow]:
        found = await list_recoveries(databases, ended=include_ended, most=limit)
        return [recovery_row(one) for one in found]

    rows = with_authority(state_dir, read_rows)
    remedy = "nothing is lost; --all lists those that ended"
    print_rows("recoveries", rows, limit, as_json, remedy)


@app.command()
def tenants(limit: Limit = 200, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List tenants with their hard quota, and how much of it is granted and used."""

    census = with_authority(state_dir, take_census)
    rows: list[TenantRow] = [tenant_row(one) for one in census.tenants]
    print_rows("tenants", rows, limit, as_json, REMEDY, missing=census.unreachable)


@app.command()
def grants(
    tenant: TenantOption = None,
    region: RegionOption = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List what each region was granted of each quota, who waits for more, and who hoards it."""
    of_tenant = None if tenant is None else parse_tenant(tenant)
    in_region = None if region is None else parse_region(region)
    reports, missing = with_authority(state_dir, report_grants)
    rows = [
        grant_row(one)
        for one in reports
        if of_tenant in (None, one.tenant) and in_region in (None, one.region)
    ]
    print_rows("grants", rows, limit, as_json, REMEDY, missing=missing)


@app.command()
def budgets(
    region: RegionOption = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List what regions keep for recovery, what is drawn on it, by whom, and until when."""
    in_region = None if region is None else parse_region(region)

    async def read_rows(databases: Databases) -> tuple[list[BudgetRow], Missing]:
        census, now = await take_census(databases), await read_time(databases)
        found = [budget for one in census.regions for budget in one.budgets]
        rows = [budget_row(one, now) for one in found if in_region in (None, one.region)]
        return rows, census.unreachable

    rows, missing = with_authority(state_dir, read_rows)
    remedy = "keep some with durable override create recovery-budget, or in the fleet's manifest"
    print_rows("budgets", rows, limit, as_json, remedy, missing=missing)


@app.command()
def regions(
    live: Annotated[
        bool, flag("--live", help="Exit with 1 unless every region has a live node.")
    ] = False,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List regions: their state, what they are taken for, since when, why, and their live nodes."""

    async def read(databases: Databases) -> tuple[Census, Mapping[RegionId, RegionFact]]:
        return await take_census(databases), await read_facts(databases)

    census, facts = with_authority(state_dir, read)
    rows: list[RegionRow] = [
        region_row(one, facts.get(one.region.region)) for one in census.regions
    ]
    missing = census.unreachable
    dead = [str(row.region) for row in rows if row.nodes and not row.live]
    sentence = None
    if live and dead:
        sentence = f"No node in {', '.join(dead)} has a live lease: check that an agent runs there."
    elif live and missing:
        sentence = f"The database of {', '.join(missing)} does not answer: check that it runs."
    print_rows("regions", rows, limit, as_json, REMEDY, failure=sentence, missing=missing)
    if sentence is not None:
        fail(sentence)
