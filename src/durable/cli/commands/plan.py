"""`durable plan`: what an apply would do, and why, without changing anything."""

import typer

from durable.cli.connections import with_reader
from durable.cli.input.manifests import Files, load_workloads
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import error_object, print_error, print_json
from durable.cli.render.plan import print_plan
from durable.model.refusal import RefusalCode, RefusedError
from durable.plan.planner import Plan
from durable.resources.reader import Reader


def plan(file: Files, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show what an apply would do, without changing anything."""
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
