"""A workflow whose history its code cannot replay: found, and freed as the runbook says."""

import asyncio
import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from durable.signals.names import PLACEMENT, regional_queue
from durable.stack.temporal_server import temporal_binary
from durable.temporal.running import list_running
from durable.temporal.worker import patient
from tests.workflows.plane import EAST, Plane, until

RUNBOOK = Path(__file__).parents[2] / "runbooks" / "workflow-stuck.md"
ID = "placement/risk/api/g1/east"


@workflow.defn(name=PLACEMENT)
class Good:
    """Counts what it is sent, and needs no timer for that."""

    def __init__(self) -> None:
        self.count = 0

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    async def add(self) -> None:
        self.count += 1

    @workflow.query
    def counted(self) -> int:
        return self.count


@workflow.defn(name=PLACEMENT)
class Bad(Good):
    """A release that does something else after the same message, and says so in the history."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self.count > 0)
        await workflow.sleep(3600)


@asynccontextmanager
async def released(client: Client, version: type[Any]) -> AsyncGenerator[None]:
    async with patient(
        Worker(
            client,
            task_queue=regional_queue(EAST),
            workflows=[version],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=0,
        )
    ):
        yield


async def timer_started(handle: WorkflowHandle[Any, Any]) -> bool:
    history = await handle.fetch_history()
    return any(event.HasField("timer_started_event_attributes") for event in history.events)


async def test_a_stuck_workflow_is_found_and_freed_by_the_runbook(plane: Plane) -> None:
    client = plane.durable.client

    async def fails() -> bool:
        return ID in (await list_running(client)).failing

    async def works() -> bool:
        return not await fails() and await client.get_workflow_handle(ID).query("counted") == 2

    handle = await client.start_workflow(
        PLACEMENT, id=ID, task_queue=regional_queue(EAST), task_timeout=timedelta(seconds=1)
    )
    async with released(client, Bad):
        await handle.signal("add")
        await until(lambda: timer_started(handle), "the bad release has left its mark")
    async with released(client, Good):
        await handle.signal("add")
        await until(fails, "it is found to fail its tasks")
        await run_the_runbook(plane)
        await until(works, "it counts again, and nothing that it was sent is lost")


async def run_the_runbook(plane: Plane) -> None:
    [command] = re.findall(r"^ *(temporal workflow reset .+)$", RUNBOOK.read_text(), re.MULTILINE)
    words = shlex.split(command.replace("WORKFLOW_ID", ID))
    assert words[0] == "temporal"
    done = await asyncio.create_subprocess_exec(
        temporal_binary(),
        *words[1:],
        f"--address={plane.settings.require_temporal_address()}",
        f"--namespace={plane.settings.temporal_namespace}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await done.communicate()
    assert done.returncode == 0, output.decode()
