"""`durable diff`: what differs between two generations of a workload."""

from typing import Annotated

import typer

from durable.authority.db.connection import Databases
from durable.authority.workloads.generations import list_generations, unknown_generation
from durable.cli.connections import with_authority
from durable.cli.input.options import AsJson, StateDir, WorkloadArgument, parse_workload
from durable.cli.render.output import print_json, results
from durable.cli.render.spec_diff import differences, show_value
from durable.cli.render.tables import print_table
from durable.explain.explain import require_workload
from durable.model.ids import TenantId, WorkloadName
from durable.model.work.rollout import GenerationRecord

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

    async def read(databases: Databases) -> list[GenerationRecord]:
        return [
            await find_generation(databases, tenant, workload, generation)
            for generation in (before, after)
        ]

    old, new = with_authority(state_dir, read)
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


async def find_generation(
    databases: Databases, tenant: TenantId, workload: WorkloadName, generation: int
) -> GenerationRecord:
    """One generation of the history, or a refusal that names those that are known."""
    await require_workload(databases, tenant, workload)
    known = {one.generation: one for one in await list_generations(databases, tenant, workload)}
    if generation not in known:
        raise unknown_generation(tenant, workload, generation, known)
    return known[generation]
