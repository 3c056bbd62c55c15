"""What two workflows cost when nothing is in them: the least that a workload can cost.

A workload is an update that starts a workflow, which starts a second one on another queue. Here are
the same messages, the same steps and the same processes, and every step does nothing: no database,
no decision, no agent. What is left is Temporal's part and the SDK's.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from durable.temporal.sandbox import sandbox
from durable.temporal.worker import MAX_WORKFLOW_TASKS, collect_garbage_rarely

STEP = timedelta(seconds=10)
OUTER, INNER = "empty-outer", "empty-inner"


class EmptyActivities:
    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def divide(self, name: str) -> None:
        await self._client.start_workflow(
            Inner.run, name, id=f"{INNER}-{name}", task_queue=INNER, task_timeout=STEP
        )


@workflow.defn
class Outer:
    """Like a workload: the update admits, the loop divides; then it stays."""

    def __init__(self) -> None:
        self._is_admitted = False

    @workflow.run
    async def run(self, name: str) -> None:
        await workflow.wait_condition(lambda: self._is_admitted)
        await workflow.execute_local_activity_method(
            EmptyActivities.divide, name, start_to_close_timeout=STEP
        )
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def apply(self, name: str) -> None:
        await workflow.execute_local_activity(admit, name, start_to_close_timeout=STEP)
        self._is_admitted = True


@workflow.defn
class Inner:
    """Like a placement: it recalls, reserves, binds and starts; then it stays."""

    @workflow.run
    async def run(self, name: str) -> None:
        for step in (recall, reserve, bind, start):
            await workflow.execute_local_activity(step, name, start_to_close_timeout=STEP)
        await workflow.wait_condition(lambda: False)


@activity.defn
async def admit(name: str) -> None:
    del name


@activity.defn
async def recall(name: str) -> None:
    del name


@activity.defn
async def reserve(name: str) -> None:
    del name


@activity.defn
async def bind(name: str) -> None:
    del name


@activity.defn
async def start(name: str) -> None:
    print(name, flush=True)


async def apply(client: Client, name: str) -> None:
    await client.execute_update_with_start_workflow(  # pyright: ignore[reportUnknownMemberType]
        Outer.apply,
        name,
        start_workflow_operation=WithStartWorkflowOperation(
            Outer.run,
            name,
            id=f"{OUTER}-{name}",
            task_queue=OUTER,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            task_timeout=STEP,
        ),
    )


@asynccontextmanager
async def workers(client: Client) -> AsyncGenerator[asyncio.StreamReader]:
    """Both, as processes of their own; the inner one prints the name of each that arrived."""
    address = client.service_client.config.target_host
    async with AsyncExitStack() as stack:
        arrivals: asyncio.StreamReader | None = None
        for queue in (OUTER, INNER):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", __name__, address, client.namespace, queue,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            stack.push_async_callback(_ended, process)
            arrivals = process.stdout
            assert arrivals is not None
            await arrivals.readline()  # it is up
        assert arrivals is not None
        yield arrivals


async def _ended(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.communicate()


async def serve(address: str, namespace: str, queue: str) -> None:
    collect_garbage_rarely()
    client = await Client.connect(address, namespace=namespace)
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Outer, Inner],
        activities=[admit, recall, reserve, bind, start, EmptyActivities(client).divide],
        workflow_runner=sandbox(),
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(initial=5, maximum=40),
        max_concurrent_workflow_tasks=MAX_WORKFLOW_TASKS,
    ):
        print("up", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    from bench._empty_pair import serve as serve_by_name  # workflows need a module with a name

    asyncio.run(serve_by_name(*sys.argv[1:]))
