"""A worker with one small workflow, as a process of its own that a test can kill."""

import asyncio
import os
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from durable.temporal.query_loads import forget_query_loads

QUEUE = "counting"
REST = timedelta(seconds=2)


@activity.defn
async def count(number: int) -> int:
    return number


@workflow.defn
class Counting:
    """Counts whenever a signal came, and after each rest."""

    def __init__(self) -> None:
        self._number = self._signals = 0
        self._is_over = False

    @workflow.run
    async def run(self) -> int:
        while not self._is_over:
            self._signals = 0
            self._number += 1
            limit = timedelta(seconds=30)
            await workflow.execute_local_activity(count, self._number, start_to_close_timeout=limit)
            try:
                await workflow.wait_condition(lambda: self._signals > 0, timeout=REST)
            except TimeoutError:
                continue
        return self._number

    @workflow.signal
    def look(self) -> None:
        self._signals += 1

    @workflow.signal
    def end(self) -> None:
        self._is_over = True
        self._signals += 1

    @workflow.query
    def number(self) -> int:
        return self._number


async def main(address: str, namespace: str) -> None:
    client = await Client.connect(address, namespace=namespace)
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[Counting],
        activities=[count],
        workflow_runner=UnsandboxedWorkflowRunner(),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=5),
    )
    if "CARELESS" not in os.environ:
        forget_query_loads(worker, client)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
