"""Which workflows of ours Temporal runs now, which of them fail their tasks, and who polls."""

import asyncio
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from durable.model.ids import TenantId
from durable.settings import Settings
from durable.signals.impostors import why_not_ours
from durable.signals.names import RUNNING_QUERY
from durable.signals.search_attributes import TENANT
from durable.state_dir.record import StackError
from durable.temporal.connection import PROBE_TIMEOUT, connect
from durable.temporal.processes import has_ended
from durable.validation.value import Value

# The server sets it while a workflow's tasks fail one after the other, as often as its dynamic
# configuration says (`system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute`).
REPORTED_PROBLEMS = SearchAttributeKey.for_keyword_list("TemporalReportedProblems")
PAGE_SIZE = 1_000
DESCRIBED_AT_ONCE = 10
RPC_TIMEOUT = timedelta(seconds=5)
# A poll lasts a minute at most; a worker whose last poll began longer ago hangs.
MAX_SILENCE = timedelta(seconds=150)


class RunningWorkflows(Value):
    """The ids of all that run, as the visibility store knows them, perhaps seconds late."""

    ids: frozenset[str]
    # The cause of the last failure of each that fails its tasks again and again.
    failing: Mapping[str, str]


async def list_running(client: Client, tenant: TenantId | None = None) -> RunningWorkflows:
    """Every workload and placement that runs, or those of one tenant."""
    query = RUNNING_QUERY
    if tenant is not None:
        query += f" AND {TENANT.name} = '{tenant}'"
    ids: set[str] = set()
    failing: dict[str, str] = {}
    try:
        async for one in client.list_workflows(query, page_size=PAGE_SIZE, rpc_timeout=RPC_TIMEOUT):
            if why_not_ours(one) is None:
                ids.add(one.id)
            if problems := one.typed_search_attributes.get(REPORTED_PROBLEMS):
                failing[one.id] = cause_of(problems)
    except RPCError as error:
        raise StackError(f"Temporal could not list the workflows: {error.message}") from error
    return RunningWorkflows(ids=frozenset(ids), failing=failing)


def cause_of(problems: Sequence[str]) -> str:
    """`category=WorkflowTaskFailed`, `cause=WorkflowTaskFailedCauseX` in a few words."""
    parts = (problem.partition("=") for problem in problems)
    named = {name: value for name, _, value in parts}
    category = named.get("category", "unknown").removeprefix("WorkflowTask")
    cause = re.sub("^WorkflowTask(Failed|TimedOut)Cause", "", named.get("cause", ""))
    words = re.sub("(?<=[a-z])(?=[A-Z])", " ", cause or category)
    return words.lower()


async def statuses_of(
    client: Client, ids: Iterable[str]
) -> dict[str, WorkflowExecutionStatus | None]:
    """How each of a few workflows is according to its own record; None if there is none of ours."""
    gate = asyncio.Semaphore(DESCRIBED_AT_ONCE)

    async def status(id: str) -> WorkflowExecutionStatus | None:
        async with gate:
            try:
                found = await client.get_workflow_handle(id).describe(rpc_timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return None
                raise StackError(f"Temporal could not describe {id}: {error.message}") from error
            return found.status if why_not_ours(found) is None else None

    named = list(ids)
    return dict(zip(named, await asyncio.gather(*map(status, named)), strict=True))


async def unserved_queues(client: Client, queues: Iterable[str], now: datetime) -> list[str]:
    """The task queues that no worker polls, on this machine or on any other.

    `now` is the authority's: by the clock of a host that is an hour ahead, no worker polls.
    """
    named = list(queues)
    served = await asyncio.gather(*(_is_served(client, queue, now) for queue in named))
    return [queue for queue, is_served in zip(named, served, strict=True) if not is_served]


async def unserved_if_known(
    client: Client, queues: Iterable[str], now: datetime
) -> list[str] | None:
    """The same where the answer is not needed to go on."""
    try:
        return await unserved_queues(client, queues, now)
    except StackError:
        return None


async def workers_of(
    settings: Settings, address: str, queues: Sequence[str]
) -> dict[str, list[str]]:
    """The workers on this machine that poll each task queue, as `pid@host`."""
    client, here = await connect(settings, address), f"@{socket.gethostname()}"
    # Of this machine by its own clock, and within the time of a probe.
    pollers = {
        queue: await _pollers(client, queue, datetime.now(UTC), PROBE_TIMEOUT) for queue in queues
    }
    return {
        queue: sorted({one for one in found if one.endswith(here)})
        for queue, found in pollers.items()
    }


async def queues_not_polled_by(
    pid: int, settings: Settings, address: str, queues: Sequence[str]
) -> list[str]:
    """The queues that this process does not poll, as far as Temporal knows."""
    found = await workers_of(settings, address, queues)
    return [
        queue
        for queue, workers in found.items()
        if not any(worker.startswith(f"{pid}@") for worker in workers)
    ]


async def _is_served(client: Client, queue: str, now: datetime) -> bool:
    pollers = await _pollers(client, queue, now, RPC_TIMEOUT)
    return not all(map(has_ended, pollers))


async def _pollers(client: Client, queue: str, now: datetime, within: timedelta) -> list[str]:
    """The identities of those that polled a moment ago."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        answer = await client.workflow_service.describe_task_queue(request, timeout=within)
    except RPCError as error:
        raise StackError(f"Temporal could not say who polls {queue}: {error.message}") from error
    return [
        poller.identity
        for poller in answer.pollers
        if now - poller.last_access_time.ToDatetime(tzinfo=UTC) < MAX_SILENCE
    ]
