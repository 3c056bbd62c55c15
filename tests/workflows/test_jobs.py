"""A job tells of each replica that is done, and afterwards how it ended."""

from durable.signals.status import WorkloadStatus
from tests.workflows.plane import EAST, WEST, Plane, manifest, small_fleet, until
from tests.workflows.test_trouble import set_faults


async def with_a_node_that_hangs(plane: Plane) -> None:
    """Two nodes in each of two regions, of which one never gets on with what it runs."""
    await plane.load(small_fleet("east", "west", nodes=2))
    set_faults(plane, {"kind": "never_ready", "node": "west-general-0000"})
    await (await plane.host(EAST, WEST)).work(EAST, WEST)


async def has_completed(plane: Plane, count: int) -> WorkloadStatus:
    async def come_so_far() -> WorkloadStatus | None:
        status = await plane.durable.status("risk", "score")
        return status if status.completed >= count else None

    status = await until(come_so_far, f"{count} are completed")
    assert status is not None
    return status


async def test_a_replica_that_is_done_counts_at_once_and_only_once(plane: Plane) -> None:
    await with_a_node_that_hangs(plane)
    await plane.durable.apply(
        manifest("score", replicas=4, kind="job", spread={"max_per_node": 1}), request_id="run"
    )

    status = await has_completed(plane, 3)
    assert (status.phase, status.completed, status.bound) == ("progressing", 3, 1)
    assert {one.region: one.completed for one in status.regions} == {EAST: 2, WEST: 1}
    [complete] = [one for one in status.conditions if one.type == "Complete"]
    assert (complete.status, complete.sentence) == (False, "3 of 4 are done")

    set_faults(plane)
    ended = await plane.durable.wait("risk", "score", until="complete")
    assert (ended.phase, ended.completed, ended.bound) == ("complete", 4, 0)
    await plane.no_promise_is_broken()
