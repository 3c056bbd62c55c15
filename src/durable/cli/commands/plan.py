"""`durable plan`: where workloads would go and why, without changing anything."""

import typer
from rich.markup import escape

from durable.authority.db.connection import Databases
from durable.cli.connections import with_authority
from durable.cli.input.manifests import Files, load_workloads
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import error_object, print_json, progress, results
from durable.cli.render.tables import print_table
from durable.model.refusal import RefusalCode, RefusedError
from durable.plan.planner import Action, Plan, Planner, RegionPlan
from durable.scheduling.proposal import Assignment

SLOTS_SHOWN = 6


def plan(file: Files, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show what an apply would do now, workload by workload, without changing anything."""
    manifests = load_workloads(file)

    async def work(databases: Databases) -> tuple[list[Plan], list[tuple[RefusalCode, str]]]:
        planner = Planner(databases)
        plans: list[Plan] = []
        refused: list[tuple[RefusalCode, str]] = []
        for manifest in manifests:
            try:
                plans.append(await planner.plan(manifest))
            except RefusedError as error:
                said = f"{manifest.tenant}/{manifest.name} would be refused: {error}"
                refused.append((error.refusal.code, said))
        return plans, refused

    plans, refused = with_authority(state_dir, work)
    if as_json:
        shown = [one.model_dump(mode="json") for one in plans]
        failure = error_object(*refused[0]) if refused else {}
        print_json({"plans": shown, "refusals": [said for _, said in refused], **failure})
    else:
        for one in plans:
            print_plan(one)
    for _, said in refused:
        progress.print(f"[bold red]Error:[/] {escape(said)}")
    if refused:
        raise typer.Exit(1)


def print_plan(plan: Plan) -> None:
    """One workload's plan as people read it."""
    title = f"{plan.tenant}/{plan.workload}: {plan.action}, generation {plan.generation}"
    heads = ("Region", "Keeps", "Places", "Stops", "Waits")
    print_table(heads, [_cells(region) for region in plan.regions], title)
    for region in plan.regions:
        for line in _why(region):
            results.print(f"  {escape(line)}")
    if plan.action is Action.NOTHING and not any(r.places or r.waits for r in plan.regions):
        results.print("  Applying it changes nothing.")


def _cells(region: RegionPlan) -> list[str]:
    moves = (region.keeps, region.places, region.stops)
    waits = str(len(region.waits)) if region.waits else ""
    return [region.region, *map(_nodes, moves), waits]


def _why(region: RegionPlan) -> list[str]:
    evidence = region.evidence
    if evidence is None:
        return []
    lines = [
        f"{region.region}: {evidence.feasible:,} of {evidence.nodes:,} nodes could take it"
        f" (policy {evidence.policy_revision}, version {evidence.cache_version})"
    ]
    if evidence.rejections:
        lines.append(f"{region.region}: refused by {region.filtered}")
    if evidence.candidates:
        best = evidence.candidates[0]
        scores = ", ".join(f"{name} {value:g}" for name, value in best.scores.items() if value)
        lines.append(f"{region.region}: best is {best.node} with {best.total:g} ({scores})")
    if region.pending is not None:
        lines.append(f"{region.region}: waits: {region.pending}")
    return lines


def _nodes(placed: tuple[Assignment, ...]) -> str:
    if not placed:
        return ""
    shown = ", ".join(f"{one.slot} on {one.node}" for one in placed[:SLOTS_SHOWN])
    more = f" and {len(placed) - SLOTS_SHOWN} more" if len(placed) > SLOTS_SHOWN else ""
    return f"{len(placed)}: {shown}{more}"
