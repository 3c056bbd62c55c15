"""The server that we start gives tenants their turns: a burst delays another tenant by little."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from durable.model.ids import TenantId
from durable.signals.starting import turn_of
from durable.temporal.worker import patient
from tests.workflows.plane import Plane

QUEUE, BURST = "fairness", 60
order: list[str] = []


@workflow.defn(name="takes-a-turn")
class TakesATurn:
    @workflow.run
    async def run(self) -> None:
        order.append(workflow.info().workflow_id.partition("/")[0])


async def test_a_tenant_behind_a_burst_is_served_among_the_first(plane: Plane) -> None:
    client = plane.durable.client
    order.clear()

    async def start(tenant: str, number: int) -> None:
        await client.start_workflow(
            TakesATurn.run,
            id=f"{tenant}/{number}",
            task_queue=QUEUE,
            priority=turn_of(TenantId(tenant), 100),
            execution_timeout=timedelta(minutes=1),
        )

    for number in range(BURST):
        await start("large", number)
    for number in range(3):
        await start("small", number)
    async with patient(
        Worker(
            client,
            task_queue=QUEUE,
            workflows=[TakesATurn],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_workflow_tasks=2,
            max_cached_workflows=0,
            max_concurrent_workflow_task_polls=1,
        )
    ):
        async with asyncio.timeout(60):
            while len(order) < BURST + 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert [place for place, tenant in enumerate(order) if tenant == "small"][-1] < BURST // 2
