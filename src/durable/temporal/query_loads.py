"""Forgets runs that a query has taken beyond their last workflow task.

A query whose worker has died waits for another one, and then comes with the whole history: also
with what happened since the last task, such as a timer that fired. The SDK's core (seen in 1.28 to
1.35) runs the workflow over all of it, steps included, and keeps the run. The task that is still to
come then goes on from there: a signal that came meanwhile is handed over later than any replay
would, the history records what nothing repeats, and the workflow does not answer any more.

So a run that was loaded from its history and has gone beyond it is forgotten before the query is
answered, if a task is pending: that begins again. What a step did in vain is idempotent.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

log = logging.getLogger(__name__)

# The id of a query that came by itself; any other came with a workflow task.
BY_ITSELF = "legacy_query"
# How long to ask the server; a run is forgotten if it does not answer.
ASKED_FOR = timedelta(seconds=5)


def forget_query_loads(worker: Worker, client: Client) -> Worker:
    """Has a worker do that from now on; the SDK offers no other place for it."""
    tasks: Any = worker._workflow_worker  # pyright: ignore[reportPrivateUsage]
    handle: Callable[[WorkflowActivation], Awaitable[None]] = tasks._handle_activation
    loads = QueryLoads(client)

    async def handle_activation(activation: WorkflowActivation) -> None:
        running = tasks._running_workflows.get(activation.run_id)
        if loads.is_doubtful(activation) and running is not None:
            workflow_id = running.workflow_id
            if await loads.has_pending_task(workflow_id, activation.run_id):
                log.info("%s was loaded by a query and is loaded again", workflow_id)
                tasks._bridge_worker().request_workflow_eviction(activation.run_id)
        await handle(activation)

    tasks._handle_activation = handle_activation
    return worker


class QueryLoads:
    """The runs that may have been loaded by a query, and whether they went beyond their history."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._has_gone_on: dict[str, bool] = {}

    def is_doubtful(self, activation: WorkflowActivation) -> bool:
        """Follows what a run is given; whether it may be beyond what its tasks have completed."""
        run, jobs = activation.run_id, activation.jobs
        kinds = {job.WhichOneof("variant") for job in jobs}
        if "remove_from_cache" in kinds:
            self._has_gone_on.pop(run, None)
        if "initialize_workflow" in kinds and activation.is_replaying:
            self._has_gone_on[run] = False
        if run not in self._has_gone_on:
            return False
        if "query_workflow" not in kinds:
            self._has_gone_on[run] |= not activation.is_replaying
            return False
        if any(job.query_workflow.query_id != BY_ITSELF for job in jobs):
            del self._has_gone_on[run]
            return False
        return self._has_gone_on[run]

    async def has_pending_task(self, workflow_id: str, run: str) -> bool:
        """Whether the server still waits for a task; if not, it was one that this run went on by.

        From then on queries come to this worker, and with nothing else.
        """
        handle = self._client.get_workflow_handle(workflow_id, run_id=run)
        try:
            description = await handle.describe(rpc_timeout=ASKED_FOR)
        except RPCError:
            return True
        if description.raw_description.HasField("pending_workflow_task"):
            return True
        self._has_gone_on.pop(run, None)
        return False
