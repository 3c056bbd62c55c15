"""`durable diff`: what differs between two generations of a workload."""

from typing import Annotated

import typer

from durable.cli.connections import with_reader
from durable.cli.input.options import AsJson, StateDir, WorkloadArgument, parse_workload
from durable.cli.render.output import print_json, results
from durable.cli.render.spec_diff import differences, show_value
from durable.cli.render.tables import print_table
from durable.model.work.rollout import GenerationRecord
from durable.resources.reader import Reader

MAX_GENERATION = 2**31 - 1


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
    """Show what differs between two generations of a workload."""
    tenant, workload = parse_workload(name)

    async def read(reader: Reader) -> list[GenerationRecord]:
        return [await reader.generation(tenant, workload, number) for number in (before, after)]

    old, new = with_reader(state_dir, read)
    found = differences(old.spec, new.spec)
    if as_json:
        fields = [one.model_dump(mode="json") for one in found]
        print_json({"workload": name, "from": before, "to": after, "differences": fields})
    elif not found:
        results.print(f"Generations {before} and {after} of {name} have the same spec.")
    else:
        heads = ("Field", f"Generation {before}", f"Generation {after}")
        rows = [[one.field, show_value(one.before), show_value(one.after)] for one in found]
        print_table(heads, rows)
