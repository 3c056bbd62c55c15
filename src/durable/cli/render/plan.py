"""What would happen, as people read it: of an apply by regions, and of the loss of a region."""

from collections.abc import Sequence

from durable.cli.render.output import listed, print_lines, results
from durable.cli.render.tables import print_table
from durable.model.placement.claims import SlotOnNode
from durable.model.recovery.readiness import LossOutlook, WorkloadReadiness
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


# ── the loss of a region ────────────────────────────────────────────────────────────────────────


def print_outlooks(outlooks: Sequence[LossOutlook]) -> None:
    """One row for each critical workload and region that it would lose."""
    rows = [_outlook_cells(outlook, one) for outlook in outlooks for one in outlook.workloads]
    if rows:
        heads = ("If lost", "Workload", "Loses", "Keeps", "Recovers", "Where", "About", "Objective")
        print_table(list(heads), rows)
    for outlook in outlooks:
        for region, why in outlook.unusable.items():
            results.print(f"If {outlook.region} were lost, {region} could take nothing: {why}")
        if not outlook.workloads:
            results.print(f"No critical workload has replicas in {outlook.region}.")
        if outlook.others:
            others = counted(outlook.others, "other workload")
            results.print(
                f"If {outlook.region} were lost, {others} there would move after the critical "
                "ones, as far as there is room: no objective is checked for them."
            )
    late = [(outlook, one) for outlook in outlooks for one in outlook.workloads if not one.is_met]
    for outlook, one in late:
        name = f"{one.tenant}/{one.workload}"
        results.print(f"[red]If {outlook.region} were lost, {name}:[/] {one.missing}")
    if not late:
        results.print("Every critical workload would be back within its objective.")


def _outlook_cells(outlook: LossOutlook, one: WorkloadReadiness) -> list[str]:
    where = ", ".join(f"{region} {count}" for region, count in sorted(one.recovers.items()))
    return [
        str(outlook.region),
        f"{one.tenant}/{one.workload}",
        str(one.lost),
        str(one.kept),
        f"{one.recovered} of {one.lost}",
        where or "nowhere",
        f"{one.estimated_seconds:.0f} s",
        "met" if one.is_met else "missed",
    ]
