"""`durable queue`: who waits for a node, in order, and what for."""

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import Answers, ask_regions
from durable.authority.queue.requests import read_queue
from durable.cli.connections import select_regions, with_authority
from durable.cli.input.options import AsJson, RegionOption, StateDir, parse_region
from durable.cli.render.output import missing_object, note_missing, print_json, results
from durable.cli.render.tables import print_table
from durable.model.placement.request import QueuedRequest


def queue(region: RegionOption = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show who waits for a node, in order, and what for."""
    region_id = parse_region(region)

    async def read_rows(databases: Databases) -> Answers[list[QueuedRequest]]:
        regions = await select_regions(databases, region_id)
        return await ask_regions(regions, lambda one: read_queue(databases, one))

    answers = with_authority(state_dir, read_rows)
    rows = [row for found in answers.by_region.values() for row in found]
    note_missing(answers.missing)
    if as_json:
        content = [row.model_dump(mode="json", exclude={"spec"}) for row in rows]
        print_json({"queue": content, **missing_object(answers.missing)})
        return
    if not rows:
        results.print("Nothing is waiting.")
        return
    heads = ("Workload", "Region", "Position", "Waiting", "Priority", "Age", "Next retry")
    print_table([*heads, "Waits for"], [_cells(row) for row in rows])


def _cells(row: QueuedRequest) -> list[str]:
    retry = "on wakeup" if row.next_retry_at is None else f"{row.next_retry_at:%H:%M:%S}Z"
    name = f"{row.tenant}/{row.workload} g{row.generation}"
    counts = (row.region, row.position, row.waiting, row.priority)
    return [name, *map(str, counts), f"{row.age_seconds:.0f} s", retry, str(row.pending)]
