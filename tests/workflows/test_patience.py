"""A busy machine: a task that gets no CPU for seconds is late, not deadlocked."""

import time
from datetime import timedelta

from temporalio import workflow
from temporalio.api.enums.v1 import EventType

from durable.temporal import worker
from tests.workflows.plane import Plane

# Longer than the SDK would wait; the event loop of the workflow gets no turn meanwhile.
STALL_SECONDS = 4


@workflow.defn(sandboxed=False)
class Stalled:
    @workflow.run
    async def run(self) -> str:
        time.sleep(STALL_SECONDS)  # noqa: ASYNC251
        return "done"


async def test_a_task_that_stalls_for_seconds_is_neither_interrupted_nor_repeated(
    plane: Plane,
) -> None:
    serving = worker._worker(plane.durable.client, "stalled", [Stalled], [], timedelta(seconds=1))  # pyright: ignore[reportPrivateUsage]
    async with serving:
        handle = await plane.durable.client.start_workflow(
            Stalled.run, id="stalled", task_queue="stalled", task_timeout=timedelta(seconds=60)
        )
        assert await handle.result() == "done"
    failed = [
        event
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
    ]
    assert not failed
