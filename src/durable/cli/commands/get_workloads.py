"""`durable get workloads`, `placements` and `decisions`: what is wanted, and what became of it."""

from typing import Annotated

import typer

from durable.authority.db.connection import Databases
from durable.authority.queue.decisions import read_decisions
from durable.authority.quota.quotas import read_quota
from durable.authority.reads.shares import ShareStatus, read_shares
from durable.authority.workloads import list_workloads
from durable.cli.connections import with_authority
from durable.cli.input.filters import (
    Limit,
    Region,
    Tenant,
    region_named,
    scope_of,
    tenant_named,
)
from durable.cli.input.names import EXAMPLE, workload_named
from durable.cli.input.options import AsJson, StateDir, load_settings
from durable.cli.input.regions import chosen_regions
from durable.cli.render.holds import Hold, read_holds
from durable.cli.render.output import progress
from durable.cli.render.phrases import counted
from durable.cli.render.tables import print_rows
from durable.cli.render.workloads import (
    DecisionRow,
    PlacementRow,
    WorkloadSummary,
    key_of,
    placement_of,
    placement_row,
    workload_row,
)
from durable.explain.explain import read_admitted
from durable.model.ids import TenantId
from durable.model.workload import WorkloadKind


def workloads(
    tenant: Tenant = None,
    every: Annotated[
        bool, typer.Option("--all", "--ended", help="Finished jobs and deleted workloads, too.")
    ] = False,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every workload, and how many of its replicas are bound, ready and serving, or completed."""
    whose = tenant_named(tenant)

    async def work(databases: Databases) -> tuple[list[WorkloadSummary], int]:
        wanted = await list_workloads(databases, whose)
        # Read apart, so that no number of those that ended cuts off one that is wanted.
        read = [] if as_json and not every else await list_workloads(databases, whose, deleted=True)
        ended = [one for one in read if one.deleted]
        if not wanted and not ended:
            await _refuse_unknown(databases, whose)
        # Also where their part is over: what was completed there counts.
        jobs = [key_of(one) for one in wanted if one.spec.kind is WorkloadKind.JOB]
        shares = [
            share
            for region in await chosen_regions(databases, None)
            for share in await read_shares(databases, region, whose, also=jobs)
        ]
        shown = [*wanted, *ended] if every else wanted
        return [workload_row(one, shares) for one in shown], 0 if every else len(ended)

    rows, hidden = with_authority(state_dir, work)
    if rows or not hidden:
        remedy = "apply one with durable apply -f FILE"
        print_rows("workloads", rows, limit, as_json, remedy, scope=scope_of(whose))
    if hidden:
        said = f"{counted(hidden, 'workload')} ended: see durable get workloads --all"
        progress.print(f"and {said}" if rows else f"Nothing is wanted now; {said}")


def placements(
    tenant: Tenant = None,
    region: Region = None,
    limit: Limit = 200,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Every region's share of every workload generation, what it waits for, and who holds it."""
    whose, where = tenant_named(tenant), region_named(region)
    settings = load_settings(state_dir)

    async def work(databases: Databases) -> list[PlacementRow]:
        shares = [
            share
            for one in await chosen_regions(databases, where)
            for share in await read_shares(databases, one, whose)
        ]
        if not shares:
            await _refuse_unknown(databases, whose)
        reasons = {placement_of(share): _reason(share) for share in shares[:limit]}
        holds = await read_holds(settings, reasons)
        unasked = Hold(None, None)
        return [placement_row(share, holds.get(placement_of(share), unasked)) for share in shares]

    rows = with_authority(state_dir, work)
    remedy = "apply a workload with durable apply -f FILE"
    print_rows("placements", rows, limit, as_json, remedy, scope=scope_of(whose, where))
    silent = sum(row.held is None for row in rows[:limit])
    if silent:
        progress.print(
            f"Whether {counted(silent, 'placement')} may be held is not known: "
            "no answer through Temporal; see durable status"
        )


async def _refuse_unknown(databases: Databases, tenant: TenantId | None) -> None:
    """A tenant that was never declared has nothing for another reason than one that waits."""
    if tenant is not None:
        await read_quota(databases, tenant)


def _reason(share: ShareStatus) -> str | None:
    return None if share.request is None else share.request.pending_reason


def decisions(
    name: Annotated[
        str | None,
        typer.Argument(metavar="TENANT/NAME", help=f"The workload; required, such as {EXAMPLE}."),
    ] = None,
    region: Region = None,
    last: Annotated[int, typer.Option(min=1, max=1_000, help="How many per region.")] = 20,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """The newest decisions on one workload; durable explain tells each of them in full."""
    if name is None:
        raise typer.BadParameter(
            f"name the workload: durable get decisions {EXAMPLE}; durable get workloads lists them",
            param_hint="TENANT/NAME",
        )
    tenant, workload = workload_named(name)
    where = region_named(region)

    async def work(databases: Databases) -> list[DecisionRow]:
        await read_admitted(databases, tenant, workload)
        return [
            DecisionRow.of(decision)
            for one in await chosen_regions(databases, where)
            for decision in await read_decisions(databases, one, tenant, workload, last=last)
        ]

    rows = with_authority(state_dir, work)
    remedy = f"durable explain {tenant}/{workload} tells what it waits for"
    on = f" on {tenant}/{workload}{scope_of(None, where)}"
    print_rows("decisions", rows, 10_000, as_json, remedy, scope=on)
