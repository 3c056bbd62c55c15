"""Workflows that were terminated, cancelled, reset or lost come back and go on with what exists."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RetryPolicy

from durable.agent.simulated.driver import Delays
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.overrides.reads import obeyed_overrides
from durable.authority.reads import placements
from durable.authority.reads.placements import PlacementReader
from durable.authority.workloads.admission_queue import AdmissionQueue
from durable.controllers import reconciler
from durable.controllers.reconciler import Reconciler
from durable.model.ids import RegionId
from durable.signals.payloads import EvictSlots
from durable.workflows import inbox, timeouts
from tests.workflows.plane import Plane, manifest, small_fleet, until

MESSAGES = (
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL,
    ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE,
)
TASK_COMPLETED = "workflow_task_completed_event_attributes"
WHO: dict[str, Any] = {"actor": "alice@example.com", "reason": "INC-42"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciler's own pace is for production."""
    monkeypatch.setattr(reconciler, "POLL_SECONDS", 0.2)


def workload(plane: Plane, name: str = "api") -> Any:
    return plane.durable.client.get_workflow_handle(f"workload/risk/{name}")


async def serving(plane: Plane, replicas: int = 2) -> set[int]:
    await (await (await plane.load()).host()).work()
    await plane.durable.apply(manifest(replicas=replicas))
    await plane.durable.wait("risk", "api")
    return await tokens(plane)


async def tokens(plane: Plane) -> set[int]:
    return {binding.token for binding in (await plane.bindings()).values()}


async def runs_again(handle: Any, before: str) -> None:
    async def is_new() -> bool:
        described = await handle.describe()
        return described.run_id != before and described.close_time is None

    await until(is_new, f"{handle.id} runs again")


async def terminate(handle: Any) -> None:
    await handle.terminate("by mistake")


async def cancel(handle: Any) -> None:
    await handle.cancel()


async def reset(handle: Any, at: int = 3, **how: Any) -> None:
    """Back to its first task, or another: it forgets all that it did since."""
    client = handle._client
    await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=handle.run_id or ""),
            reason="by mistake",
            workflow_task_finish_event_id=at,
            request_id="reset",
            **how,
        )
    )


async def test_a_deleted_workload_that_an_older_temporal_brings_back_ends(plane: Plane) -> None:
    """Seen: it said "serving 6 of 6" for ever."""
    await serving(plane)
    handle = workload(plane)
    history = await handle.fetch_history()
    tasks = [e.event_id for e in history.events if e.HasField(TASK_COMPLETED)]
    await plane.durable.delete("risk", "api")
    await plane.durable.wait("risk", "api", until="deleted")
    run = (await handle.describe()).run_id
    await reset(handle, tasks[-1], reset_reapply_exclude_types=MESSAGES)

    async def has_ended() -> bool:
        described = await handle.describe()
        return described.run_id != run and described.close_time is not None

    await until(has_ended, "the workload of the older copy has ended")
    assert not await plane.bindings()


@pytest.mark.parametrize("kind", ["workload", "placement"])
async def test_what_was_harmed_comes_back_and_disturbs_nothing(
    plane: Plane, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What exists is recalled in pages, of which even a small placement has several then.
    monkeypatch.setattr(placements, "SLOTS_PER_PAGE", 1)
    before = await serving(plane)
    handle = workload(plane) if kind == "workload" else plane.handle()
    harms: list[Callable[[Any], Awaitable[None]]] = [terminate, cancel, reset]
    for harm in harms:
        run = (await handle.describe()).run_id
        await harm(handle)
        await runs_again(handle, run)
        replicas = len(before)

        async def knows(replicas: int = replicas) -> bool:
            found = await plane.placement()
            status = await plane.durable.status("risk", "api")
            phases = [slot.phase for slot in found.slots]
            return phases == ["serving"] * replicas and status.serving == replicas

        await until(knows, "it knows what serves")
        assert await tokens(plane) == before, harm
        assert (await plane.durable.scale("risk", "api", replicas + 1)).generation == 1
        assert (await plane.durable.wait("risk", "api")).serving == replicas + 1
        now = await tokens(plane)
        assert before < now, harm
        before = now
    await plane.no_invariant_is_broken()


async def test_a_workload_that_was_reset_to_its_beginning_keeps_what_was_scaled_since(
    plane: Plane,
) -> None:
    await serving(plane)
    await plane.durable.scale("risk", "api", 4)
    await plane.durable.wait("risk", "api")
    before = await tokens(plane)
    await reset(workload(plane))

    async def knows() -> bool:
        status = await plane.durable.status("risk", "api")
        return (status.wanted, status.serving) == (4, 4)

    await until(knows, "it has caught up")
    assert await tokens(plane) == before


async def test_a_hold_survives_the_termination_of_its_placement(plane: Plane) -> None:
    await serving(plane)
    handle = plane.handle()
    risk_api = {"tenant": "risk", "workload": "api"}
    await plane.durable.overrides.create("hold", risk_api, reason="INC-1", id="held")
    await plane.durable.scale("risk", "api", 3)

    async def holds() -> bool:
        found = await plane.placement()
        return found.pending is not None and found.pending.code == "held" and len(found.slots) == 3

    await until(holds, "it waits, held")
    run = (await handle.describe()).run_id
    await terminate(handle)
    await runs_again(handle, run)
    await until(holds, "it is still held")
    assert len(await plane.bindings()) == 2


async def test_an_override_that_was_terminated_goes_on_and_can_be_revoked(plane: Plane) -> None:
    await serving(plane)
    risk_api = {"tenant": "risk", "workload": "api"}
    await plane.durable.overrides.create("hold", risk_api, reason="INC-1", id="held")
    handle: Any = plane.durable.client.get_workflow_handle("override/held")
    run = (await handle.describe()).run_id
    await terminate(handle)
    await runs_again(handle, run)
    assert "Revoked" in await plane.durable.overrides.revoke("held", reason="done")
    assert await obeyed_overrides(plane.databases, RegionId("east")) == []


async def test_a_job_that_was_terminated_runs_nothing_again_that_was_done(plane: Plane) -> None:
    await plane.load(small_fleet(nodes=1, cpu=8))
    slow = Delays(start_seconds=0, ready_seconds=0, stop_seconds=0, job_seconds=0.1, jitter=0)
    await (await plane.host(delays=slow)).work()
    # Room for one at a time: some are done while others still wait.
    job = manifest("score", replicas=6, kind="job", spread={"max_per_node": 1})
    await plane.durable.apply(job)

    async def some_are_done() -> bool:
        return (await plane.durable.status("risk", "score")).completed >= 2

    await until(some_are_done, "two are done")
    handle = plane.handle("score")
    await terminate(handle)
    await terminate(workload(plane, "score"))
    status = await plane.durable.wait("risk", "score", until="complete")
    assert (status.phase, status.completed) == ("complete", 6)
    started = await plane.started("score")
    assert sorted(started) == list(range(6)), "each replica was started once"


async def test_a_job_that_continues_as_new_runs_nothing_again_that_was_done(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "EVENTS_PER_RUN", 20)
    await plane.load(small_fleet(nodes=1, cpu=8))
    await (await plane.host()).work()
    job = manifest("score", replicas=6, kind="job", spread={"max_per_node": 1})
    status = await plane.durable.place(job, request_id="job")
    assert (status.phase, status.completed) == ("complete", 6)
    assert sorted(await plane.started("score")) == list(range(6)), "each was started once"
    first = await plane.handle("score").fetch_history()
    continued = first.events[
        0
    ].workflow_execution_started_event_attributes.continued_execution_run_id
    assert continued, "it took more than one run"


async def test_a_job_whose_replica_was_evicted_is_not_complete_before_it_ran_again(
    plane: Plane,
) -> None:
    await plane.load()
    slow = Delays(start_seconds=0, ready_seconds=0, stop_seconds=0, job_seconds=600, jitter=0)
    async with plane.agent(delays=slow):
        await plane.work()
        await plane.durable.apply(manifest("score", replicas=1, kind="job"))

        async def runs() -> bool:
            return len(await plane.bindings()) == 1

        await until(runs, "it runs")
        handle = plane.handle("score")
        await handle.execute_update("evict", EvictSlots(**WHO, request_id="1"))
        await terminate(handle)

        async def placed_again() -> bool:
            return len(await plane.started("score")) == 2

        await until(placed_again, "it runs again")
    assert (await plane.durable.status("risk", "score")).completed == 0


async def test_what_an_empty_temporal_has_lost_is_brought_back_from_the_authority(
    make_plane: Any, plane: Plane
) -> None:
    """Another namespace has no workflows: to the authority that is Temporal's database lost."""
    before = await serving(plane)
    await plane.durable.place(manifest("score", kind="job"), request_id="job")
    await plane.durable.apply(manifest("gone"))
    await plane.durable.delete("risk", "gone")
    await plane.durable.wait("risk", "gone", until="deleted")
    await plane.stack.aclose()

    empty: Plane = await make_plane()
    empty.adopt_databases(plane)
    lost = Reconciler(empty.durable.client, empty.databases)
    missing = await lost.unmanaged(await lost.running())
    assert missing.ids == ["workload/risk/api", "placement/risk/api/g1/east"]
    await lost.start(missing)
    await (await empty.host()).work()

    async def knows() -> bool:
        status = await empty.durable.status("risk", "api")
        return status.serving == 2

    await until(knows, "the workload is looked after again")
    assert await tokens(empty) == before
    assert (await empty.durable.scale("risk", "api", 3)).generation == 1
    assert (await empty.durable.wait("risk", "api")).serving == 3
    assert before < await tokens(empty)
    assert sorted(await empty.started("score")) == [0, 1], "nothing was started twice"
    await empty.no_invariant_is_broken()


async def test_a_placement_whose_region_was_away_when_it_began_goes_on_when_it_is_back(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await serving(plane)
    read = PlacementReader.facts
    asked = 0

    async def away(*_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        raise AuthorityUnreachableError("the region is away")

    monkeypatch.setattr(PlacementReader, "facts", away)
    handle = plane.handle()
    run = (await handle.describe()).run_id
    await terminate(handle)
    await runs_again(handle, run)

    async def was_asked() -> bool:
        return asked >= 1

    await until(was_asked, "the new run has asked its region")
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update("evict", EvictSlots(**WHO, request_id="1"))
    assert "does not answer" in str(refused.value.cause)
    monkeypatch.setattr(PlacementReader, "facts", read)

    async def knows() -> bool:
        return [slot.phase for slot in (await plane.placement()).slots] == ["serving"] * 2

    await until(knows, "it knows what serves")
    assert await tokens(plane) == before


async def test_a_scale_whose_answer_was_lost_is_driven_all_the_same(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serving(plane)
    monkeypatch.setattr(timeouts, "ADMIT_RETRY", RetryPolicy(maximum_attempts=1))
    admit = AdmissionQueue.submit
    lost = 0

    async def answer_is_lost(self: Any, request: Any) -> Any:
        nonlocal lost
        answer = await admit(self, request)
        lost += 1
        if lost == 1:
            raise AuthorityUnreachableError("the answer was lost")
        return answer

    monkeypatch.setattr(AdmissionQueue, "submit", answer_is_lost)
    with pytest.raises(Exception, match="did not answer"):
        await plane.durable.scale("risk", "api", 3)

    async def driven() -> bool:
        return (await plane.durable.status("risk", "api")).serving == 3

    await until(driven, "what was recorded is driven")


async def test_a_run_that_is_reset_out_of_an_earlier_life_takes_over_the_present_one(
    plane: Plane,
) -> None:
    await serving(plane)
    old = (await workload(plane).describe()).run_id
    await plane.durable.delete("risk", "api")
    await plane.durable.wait("risk", "api", until="deleted")
    await plane.durable.apply(manifest(replicas=2))
    await plane.durable.wait("risk", "api")
    before = await tokens(plane)
    handle = plane.durable.client.get_workflow_handle("workload/risk/api", run_id=old)
    history = await handle.fetch_history()
    tasks = [event.event_id for event in history.events if event.event_type == 7]
    await reset(handle, at=tasks[-1])

    async def knows() -> bool:
        status = await plane.durable.status("risk", "api")
        return (status.generation, status.serving, status.deleting) == (2, 2, False)

    await until(knows, "it manages the present life")
    assert await tokens(plane) == before
    assert (await plane.durable.scale("risk", "api", 3)).generation == 2
    assert (await plane.durable.wait("risk", "api")).serving == 3
    await plane.no_invariant_is_broken()
