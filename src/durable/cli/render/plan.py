"""A plan as people read it: how many slots change in each region, then which and why."""

from collections.abc import Sequence

from durable.cli.render.output import listed, print_lines, results
from durable.cli.render.tables import print_table
from durable.model.placement.claims import SlotOnNode
from durable.plan.planner import Plan, RegionPlan
from durable.plan.step import Action
from durable.validation.text import counted

SLOTS_SHOWN = 6


def print_plan(plan: Plan) -> None:
    title = f"{plan.tenant}/{plan.workload}: {plan.action}, generation {plan.generation}"
    heads = ("Region", "Keeps", "Places", "Stops", "Waits")
    print_table(heads, [_cells(region) for region in plan.regions], title)
    if plan.rollout is not None:
        print_lines(plan.rollout.sentences, indent=2)
    for region in plan.regions:
        if lines := _changes(region):
            results.print(f"  [bold]{region.region}[/]")
            print_lines(lines, indent=4)
    if plan.action is Action.NOTHING and not any(r.places or r.waits for r in plan.regions):
        print_lines(["An apply would change nothing."], indent=2)


def _cells(region: RegionPlan) -> list[str]:
    moves = (region.keeps, region.places, region.stops, region.waits)
    return [region.region, *(str(len(slots)) for slots in moves)]


def _changes(region: RegionPlan) -> list[str]:
    lines: list[str] = []
    if region.places:
        lines.append(f"Places: {_nodes(region.places)}")
    if region.stops:
        lines.append(f"Stops: {_nodes(region.stops)}")
    if region.held_back:
        held_back = counted(len(region.held_back), "slot")
        lines.append(f"Held back: {held_back} until others have ended")
    if region.pending is not None:
        lines.append(f"Waits: {region.pending}")
    return lines + _evidence(region)


def _evidence(region: RegionPlan) -> list[str]:
    evidence = region.evidence
    if evidence is None:
        return []
    lines = [
        f"Filters: {evidence.feasible:,} of {evidence.nodes:,} nodes feasible (policy revision "
        f"{evidence.policy_revision}, cache version {evidence.cache_version})"
    ]
    if evidence.rejections:
        lines.append(f"Rejected: {region.filtered}")
    if evidence.candidates:
        first = evidence.candidates[0]
        scores = ", ".join(f"{name} {value:.4g}" for name, value in first.scores.items() if value)
        lines.append(f"First choice: {first.node}, score {first.total:.4g} ({scores})")
    return lines


def _nodes(slots: Sequence[SlotOnNode]) -> str:
    return listed([f"{one.slot} on {one.node}" for one in slots], SLOTS_SHOWN)
