"""`durable plan`: what an apply would do, and why, without changing anything."""

import typer
from rich.markup import escape

from durable.authority.db.connection import Databases
from durable.cli.connections import with_authority
from durable.cli.input.manifests import Files, load_workloads
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import error_object, print_error, print_json, results
from durable.cli.render.tables import print_table
from durable.model.placement import SlotOnNode
from durable.model.refusal import RefusalCode, RefusedError
from durable.plan.planner import Action, Plan, Planner, RegionPlan

MAX_SLOTS = 6


def plan(file: Files, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show what an apply would do, without changing anything."""
    manifests = load_workloads(file)

    async def plan_all(databases: Databases) -> tuple[list[Plan], list[tuple[RefusalCode, str]]]:
        planner = Planner(databases)
        plans: list[Plan] = []
        refused: list[tuple[RefusalCode, str]] = []
        for manifest in manifests:
            try:
                plans.append(await planner.plan(manifest))
            except RefusedError as error:
                sentence = f"{manifest.tenant}/{manifest.name} would be refused: {error}"
                refused.append((error.refusal.code, sentence))
        return plans, refused

    plans, refused = with_authority(state_dir, plan_all)
    if as_json:
        content = [one.model_dump(mode="json") for one in plans]
        failure = error_object(*refused[0]) if refused else {}
        refusals = [sentence for _, sentence in refused]
        print_json({"plans": content, "refusals": refusals, **failure})
    else:
        for one in plans:
            print_plan(one)
    for _, sentence in refused:
        print_error(sentence)
    if refused:
        raise typer.Exit(1)


def print_plan(plan: Plan) -> None:
    """Prints the plan of one workload."""
    title = f"{plan.tenant}/{plan.workload}: {plan.action}, generation {plan.generation}"
    heads = ("Region", "Keeps", "Places", "Stops", "Waits")
    print_table(heads, [_cells(region) for region in plan.regions], title)
    for region in plan.regions:
        for line in _why(region):
            results.print(f"  {escape(line)}")
    if plan.action is Action.NOTHING and not any(r.places or r.waits for r in plan.regions):
        results.print("  An apply would change nothing.")


def _cells(region: RegionPlan) -> list[str]:
    moves = (region.keeps, region.places, region.stops)
    waits = str(len(region.waits)) if region.waits else ""
    return [region.region, *map(_nodes, moves), waits]


def _why(region: RegionPlan) -> list[str]:
    evidence = region.evidence
    if evidence is None:
        return []
    lines = [
        f"{region.region}: {evidence.feasible:,} of {evidence.nodes:,} nodes are feasible"
        f" (policy {evidence.policy_revision}, version {evidence.cache_version})"
    ]
    if evidence.rejections:
        lines.append(f"{region.region}: rejected by {region.filtered}")
    if evidence.candidates:
        best = evidence.candidates[0]
        scores = ", ".join(f"{name} {value:g}" for name, value in best.scores.items() if value)
        lines.append(f"{region.region}: the best is {best.node}, score {best.total:g} ({scores})")
    if region.pending is not None:
        lines.append(f"{region.region}: pending: {region.pending}")
    return lines


def _nodes(placed: tuple[SlotOnNode, ...]) -> str:
    if not placed:
        return ""
    slots = ", ".join(f"{one.slot} on {one.node}" for one in placed[:MAX_SLOTS])
    more = f" and {len(placed) - MAX_SLOTS} more" if len(placed) > MAX_SLOTS else ""
    return f"{len(placed)}: {slots}{more}"
