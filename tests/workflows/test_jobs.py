"""A job reports each replica that is done, and afterwards how it ended."""

import pytest

from durable.authority.queue.requests import read_request
from durable.cli.render.explain import print_explanation
from durable.explain.explanation import Explanation
from durable.explain.slots import SlotEnd
from durable.model.ids import TenantId, WorkloadName
from durable.model.states import BindingState
from durable.model.work.phases import Owner
from durable.signals.names import workload_id
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
    await plane.no_invariant_is_broken()


async def test_an_explanation_of_a_failed_job_says_what_failed_and_where(
    plane: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    await plane.load(small_fleet(nodes=3))
    set_faults(plane, {"kind": "crash", "node": "east-general-000[01]", "workload": "risk/score"})
    await (await plane.host()).work()
    job = manifest("score", replicas=3, kind="job", max_attempts=1, spread={"max_per_node": 1})
    assert (await plane.durable.place(job, request_id="run")).phase == "failed"

    explanation = await ended(plane)
    assert (explanation.end, explanation.end_sentence) == (
        "failed",
        "1 of 3 are done, 2 were given up",
    )
    [region] = explanation.regions
    by_node = {str(one.node): (one.end, one.tries, one.evidence) for one in region.ended}
    assert by_node == {
        "east-general-0000": (SlotEnd.FAILED, 1, "simulated: crash"),
        "east-general-0001": (SlotEnd.FAILED, 1, "simulated: crash"),
        "east-general-0002": (SlotEnd.COMPLETED, 1, "simulated: exit code 0"),
    }
    assert region.condition == "1 completed, 2 given up of 3"
    assert region.owner is Owner.OPERATOR
    print_explanation(explanation)
    said = capsys.readouterr().out
    assert "generation 1 failed (1 of 3 are done, 2 were given up)" in said
    assert said.count("simulated: crash") == 1
    first, second = sorted(one.slot for one in region.ended if one.end is SlotEnd.FAILED)
    assert f"Slots {first} and {second} failed on the first try" in said


async def test_a_slot_is_explained_with_all_its_tries_and_the_last_of_them(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=2))
    set_faults(plane, {"kind": "crash", "node": "*", "workload": "risk/score"})
    await (await plane.host()).work()
    job = manifest("score", replicas=1, kind="job", max_attempts=2)
    await plane.durable.place(job, request_id="run")

    [region] = (await ended(plane)).regions
    [end] = region.ended
    assert (end.slot, end.end, end.tries) == (0, SlotEnd.FAILED, 2)
    assert end.attempt == region.attempts[-1].attempt
    assert end.node == region.attempts[-1].placed[0].node


async def test_an_explanation_of_a_completed_job_says_that_it_completed(
    plane: Plane, capsys: pytest.CaptureFixture[str]
) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.place(manifest("score", kind="job"), request_id="run")

    explanation = await ended(plane)
    assert explanation.end == "complete"
    [region] = explanation.regions
    assert (region.condition, region.owner) == ("2 completed of 2", Owner.NONE)
    print_explanation(explanation)
    said = capsys.readouterr().out
    assert "generation 1 completed (2 of 2 are done)" in said
    assert "Slots 0 and 1 completed on the first try" in said
    alone = await plane.durable.explain("risk", "score", slot=1)
    assert [one.condition for one in alone.regions] == ["1 completed of 1"]


async def test_an_explanation_of_a_deleted_job_says_that_it_was_deleted(plane: Plane) -> None:
    await with_a_node_that_hangs(plane)
    job = manifest("score", replicas=4, kind="job", spread={"max_per_node": 1})
    await plane.durable.apply(job, request_id="run")
    await has_completed(plane, 3)
    await plane.durable.delete("risk", "score", reason="INC-7")
    await plane.durable.wait("risk", "score", until="deleted")

    explanation = await ended(plane)
    assert (explanation.end, explanation.end_sentence) == ("deleted", None)
    assert {region.region: region.condition for region in explanation.regions} == {
        EAST: "2 completed of 2",
        WEST: "1 completed of 1",
    }
    ends = {one.end: one.evidence for region in explanation.regions for one in region.ended}
    assert ends == {SlotEnd.COMPLETED: "simulated: exit code 0", SlotEnd.STOPPED: "test: INC-7"}


async def ended(plane: Plane) -> Explanation:
    """The explanation once the authority knows how it ended, which the workflow tells it last."""

    async def has_ended() -> Explanation | None:
        explanation = await plane.durable.explain("risk", "score")
        return explanation if explanation.ended else None

    explanation = await until(has_ended, "the authority knows its end")
    assert explanation is not None
    return explanation


async def test_a_job_that_ended_while_its_workload_was_away_is_counted_all_the_same(
    plane: Plane,
) -> None:
    await plane.load(small_fleet(nodes=2))
    set_faults(plane, {"kind": "never_ready", "node": "*"})
    await (await plane.host()).work()
    job = manifest("score", kind="job")
    await plane.durable.apply(job, request_id="run")
    await until(lambda: runs(plane), "both run")
    workload = plane.durable.client.get_workflow_handle(
        workload_id("risk", "score")  # pyright: ignore[reportArgumentType]
    )
    await workload.terminate("by mistake")
    set_faults(plane)
    await until(lambda: are_done(plane), "both are done, and nobody counts them")

    await plane.durable.apply(job, request_id="again")
    status = await plane.durable.wait("risk", "score", until="complete")
    assert (status.generation, status.phase, status.completed) == (1, "complete", 2)


async def are_done(plane: Plane) -> bool:
    found = await read_request(plane.databases, EAST, TenantId("risk"), WorkloadName("score"), 1)
    return found is not None and found.completed == (0, 1)


async def runs(plane: Plane) -> bool:
    states = [binding.state for binding in (await plane.bindings()).values()]
    return states == [BindingState.RUNNING] * 2
