"""`durable explain`: why a workload runs where it does."""

from typing import Annotated

import typer

from durable.cli.connections import with_reader
from durable.cli.input.options import AsJson, StateDir, WorkloadArgument, parse_workload
from durable.cli.render.explain import print_explanation
from durable.cli.render.output import print_json


def explain_workload(
    name: WorkloadArgument,
    generation: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, help="A generation other than the latest."),
    ] = None,
    slot: Annotated[int | None, typer.Option(min=0, max=99_999, help="Only this slot.")] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Only this attempt.")
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Explain where a workload runs, how that was decided, and what happens next."""
    tenant, workload = parse_workload(name)
    selection = {"generation": generation, "slot": slot, "attempt": attempt}
    found = with_reader(state_dir, lambda reader: reader.explain(tenant, workload, **selection))
    if as_json:
        print_json(found)
    else:
        print_explanation(found)
