"""`durable explain`: why a workload runs where it does."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from durable.authority.db.connection import Databases
from durable.cli.connections import with_authority
from durable.cli.input.names import WorkloadArgument, parse_workload
from durable.cli.input.options import AsJson, StateDir, load_settings
from durable.cli.render.explain import print_explanation
from durable.cli.render.holds import Hold, read_holds
from durable.cli.render.output import print_json
from durable.explain.explain import explain
from durable.explain.explanation import Explanation
from durable.model.ids import RegionId
from durable.model.states import RequestState
from durable.settings import Settings
from durable.signals.names import placement_id


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
    settings = load_settings(state_dir)

    async def work(databases: Databases) -> tuple[Explanation, dict[RegionId, Hold]]:
        which = {"generation": generation, "slot": slot, "attempt": attempt}
        found = await explain(databases, tenant, workload, **which)
        return found, await _holds(settings, found)

    found, holds = with_authority(state_dir, work)
    if as_json:
        print_json(_with_holds(found, holds))
    else:
        print_explanation(found, holds)


async def _holds(settings: Settings, found: Explanation) -> dict[RegionId, Hold]:
    """The hold of each region's placement that is still live."""
    regions = {
        placement_id(found.tenant, found.workload, found.generation, one.region): one
        for one in found.regions
        if one.queue is not None and one.queue.request.state is not RequestState.WITHDRAWN
    }
    reasons = {
        name: one.queue and one.queue.request.pending_reason for name, one in regions.items()
    }
    holds = await read_holds(settings, reasons)
    return {one.region: holds[name] for name, one in regions.items()}


def _with_holds(found: Explanation, holds: Mapping[RegionId, Hold]) -> dict[str, Any]:
    content = found.model_dump(mode="json")
    for region in content["regions"]:
        hold = holds.get(RegionId(region["region"]), Hold(False, None))
        region |= {"held": hold.held, "held_by": hold.held_by}
    return content
