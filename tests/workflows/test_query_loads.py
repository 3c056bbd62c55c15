"""A query that comes after its worker died leaves a history that replays."""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from tests.workflows.counting_worker import QUEUE, Counting
from tests.workflows.plane import Plane, until

Handle = WorkflowHandle[Any, int]


@contextmanager
def worker(plane: Plane) -> Generator[None]:
    """Killed, not stopped, at the end."""
    address = plane.settings.require_temporal_address()
    command = [sys.executable, "-m", "tests.workflows.counting_worker", address]
    running = subprocess.Popen([*command, plane.settings.temporal_namespace])
    try:
        yield
    finally:
        running.kill()
        running.wait()


async def happened(handle: Handle, kind: "EventType.ValueType", times: int = 1) -> bool:
    history = await handle.fetch_history()
    return sum(event.event_type == kind for event in history.events) >= times


async def test_a_query_that_loads_a_run_before_its_task_does_not_spoil_it(plane: Plane) -> None:
    client = plane.durable.client
    handle: Handle = await client.start_workflow(Counting.run, id="counting", task_queue=QUEUE)
    rests, fired = EventType.EVENT_TYPE_TIMER_STARTED, EventType.EVENT_TYPE_TIMER_FIRED

    with worker(plane):
        await until(lambda: happened(handle, rests), "it rests")
    # Its rest ends, and the task of that waits for the dead worker, while the query does not.
    asked = asyncio.create_task(handle.query(Counting.number, rpc_timeout=timedelta(seconds=60)))
    await until(lambda: happened(handle, fired), "its rest is over")
    with worker(plane):
        await asyncio.wait({asked})
        await handle.signal(Counting.look)
        await until(lambda: happened(handle, rests, 2), "it rests again")
        await handle.signal(Counting.end)
        await handle.result()

    replayer = Replayer(workflows=[Counting], workflow_runner=UnsandboxedWorkflowRunner())
    await replayer.replay_workflow(await handle.fetch_history())
