"""`durable explain`, `plan`, `readiness` and `diff`: why, what if, and what changed."""

from collections.abc import Mapping
from typing import Annotated

import typer

from durable.cli.connections import with_reader
from durable.cli.input.manifests import Files, load_workloads
from durable.cli.input.options import (
    AsJson,
    RegionOption,
    StateDir,
    WorkloadArgument,
    parse_region,
    parse_workload,
)
from durable.cli.render.explain import print_explanation
from durable.cli.render.output import conclude, error_object, print_error, print_json
from durable.cli.render.plan import print_outlooks, print_plan
from durable.cli.render.spec_diff import Comparison
from durable.model.recovery.readiness import LossOutlook
from durable.model.refusal import RefusalCode, RefusedError
from durable.plan.planner import Plan
from durable.resources.reader import Reader

MAX_GENERATION = 2**31 - 1


def explain_workload(
    name: WorkloadArgument,
    generation: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_GENERATION, help="A generation other than the latest."),
    ] = None,
    slot: Annotated[int | None, typer.Option(min=0, max=99_999, help="Only this slot.")] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Only this attempt.")
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    tenant, workload = parse_workload(name)
    selection = {"generation": generation, "slot": slot, "attempt": attempt}
    why = with_reader(state_dir, lambda reader: reader.explain(tenant, workload, **selection))
    conclude(as_json, why, lambda: print_explanation(why))


def plan(file: Files, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    manifests = load_workloads(file)

    async def plan_all(reader: Reader) -> tuple[list[Plan], list[tuple[RefusalCode, str]]]:
        planner = reader.planner()
        plans: list[Plan] = []
        refused: list[tuple[RefusalCode, str]] = []
        for manifest in manifests:
            try:
                plans.append(await planner.plan(manifest))
            except RefusedError as error:
                sentence = f"{manifest.tenant}/{manifest.name} would be refused: {error}"
                refused.append((error.refusal.code, sentence))
        return plans, refused

    plans, refused = with_reader(state_dir, plan_all)
    if as_json:
        failure = error_object(*refused[0]) if refused else {}
        refusals = [sentence for _, sentence in refused]
        print_json({"plans": plans, "refusals": refusals, **failure})
    else:
        for one in plans:
            print_plan(one)
    for _, sentence in refused:
        print_error(sentence)
    if refused:
        raise typer.Exit(1)


def readiness(
    region: RegionOption = None, state_dir: StateDir = None, as_json: AsJson = False
) -> None:
    only = parse_region(region)
    outlooks = with_reader(state_dir, lambda reader: reader.readiness(only))
    is_met = all(one.is_met for one in outlooks)
    content = {"is_met": is_met, "regions": [_outlook(one) for one in outlooks]}
    conclude(as_json, content, lambda: print_outlooks(outlooks))
    if not is_met:
        raise typer.Exit(1)


def _outlook(outlook: LossOutlook) -> dict[str, object]:
    workloads = [
        {**one.model_dump(mode="json"), "is_met": one.is_met, "missing": one.missing}
        for one in outlook.workloads
    ]
    return {**outlook.model_dump(mode="json"), "is_met": outlook.is_met, "workloads": workloads}


def diff(
    name: WorkloadArgument,
    before: Annotated[
        int, typer.Argument(metavar="G1", min=1, max=MAX_GENERATION, help="A generation.")
    ],
    after: Annotated[
        int, typer.Argument(metavar="G2", min=1, max=MAX_GENERATION, help="Another one.")
    ],
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    tenant, workload = parse_workload(name)

    async def read(reader: Reader) -> tuple[Mapping[str, object], Mapping[str, object]]:
        old = await reader.generation(tenant, workload, before)
        return old.spec, (await reader.generation(tenant, workload, after)).spec

    same = f"Generations {before} and {after} of {name} have the same spec."
    comparison = Comparison("Generation", before, after, *with_reader(state_dir, read), same)
    conclude(as_json, {"workload": name, **comparison.content}, comparison.print)
