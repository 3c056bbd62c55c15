"""Ask Temporal which workers of this machine poll which task queue."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from durable.settings import Settings
from durable.state_dir.record import StackError
from durable.temporal.connection import PROBE_TIMEOUT, connect

# A poll lasts a minute at most; one that began longer ago is of a worker that hangs.
SILENCE = timedelta(seconds=150)


async def workers_of(
    settings: Settings, address: str, queues: Sequence[str]
) -> dict[str, list[str]]:
    """The workers of this machine by the queue that they poll, as `pid@host`."""
    client = await connect(settings, address)
    return {queue: await _pollers(client, queue) for queue in queues}


async def _pollers(client: Client, queue: str) -> list[str]:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        answer = await client.workflow_service.describe_task_queue(request, timeout=PROBE_TIMEOUT)
    except RPCError as error:
        raise StackError(f"Temporal could not tell who serves {queue}: {error.message}") from error
    here = f"@{socket.gethostname()}"
    return sorted({one.identity for one in answer.pollers if _polls(one, here)})


def _polls(poller: PollerInfo, here: str) -> bool:
    last = poller.last_access_time.ToDatetime(tzinfo=UTC)
    return poller.identity.endswith(here) and datetime.now(UTC) - last < SILENCE
