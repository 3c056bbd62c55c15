"""`durable queue`: who waits for a place, in the order of service, and what for."""

from durable.authority.db.connection import Databases
from durable.authority.queue.requests import read_queue
from durable.cli.connections import with_authority
from durable.cli.input.filters import Region, region_named
from durable.cli.input.options import AsJson, StateDir
from durable.cli.input.regions import chosen_regions
from durable.cli.render.output import print_json, results
from durable.cli.render.tables import print_table
from durable.model.request import QueuedRequest


def queue(region: Region = None, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Who waits for a place, in the order in which they are served, and what for."""
    where = region_named(region)

    async def work(databases: Databases) -> list[QueuedRequest]:
        regions = await chosen_regions(databases, where)
        return [row for one in regions for row in await read_queue(databases, one)]

    rows = with_authority(state_dir, work)
    if as_json:
        print_json({"queue": [row.model_dump(mode="json") for row in rows]})
        return
    if not rows:
        results.print("Nobody waits for a place.")
        return
    heads = ("Workload", "Region", "Position", "Waiting", "Priority", "Age", "Next look")
    print_table([*heads, "Waits for"], [_cells(row) for row in rows])


def _cells(row: QueuedRequest) -> list[str]:
    look = "at the next wakeup" if row.next_retry_at is None else f"{row.next_retry_at:%H:%M:%S}Z"
    of = f"{row.tenant}/{row.workload} g{row.generation}"
    counts = (row.region, row.position, row.waiting, row.priority)
    return [of, *map(str, counts), f"{row.age_seconds:.0f} s", look, row.pending_reason or ""]
