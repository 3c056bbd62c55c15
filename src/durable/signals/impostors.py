"""Workflows that have an id of ours and are not ours: recognised, and ended so that ours can run.

Anyone who may start workflows can take an id: with another type, on a queue that no worker of ours
polls, or with a start that is years away. Temporal then says that it runs, and nothing is done.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from durable.signals.names import kind_of, queue_of

log = logging.getLogger(__name__)

# What is started without a delay is to begin in the moment in which it is started.
AT_ONCE = timedelta(seconds=1)


def why_not_ours(one: WorkflowExecution) -> str | None:
    """In what a workflow with an id of ours differs from ours; None if it is ours."""
    kind, queue = kind_of(one.id), queue_of(one.id)
    if one.workflow_type != kind:
        return f"its type is {one.workflow_type}, and that of {one.id} is {kind}"
    if one.task_queue != queue:
        return f"it waits on the task queue {one.task_queue}, and {one.id} runs on {queue}"
    # With a cron schedule, too: each of its runs waits for its time.
    if one.execution_time is not None and one.execution_time - one.start_time > AT_ONCE:
        return f"it begins only at {one.execution_time.isoformat()}, and {one.id} is due now"
    return None


async def ensure_runs(
    client: Client, kind: str, options: Mapping[str, Any], input: object = None
) -> None:
    """Starts a workflow of ours unless it runs; whatever else has its id is ended first."""
    if await _start(client, kind, options, input):
        return
    await end_impostor(client, options["id"])
    await _start(client, kind, options, input)


async def end_impostor(client: Client, id: str) -> None:
    """Ends what has this id and is not ours, with the reason; anything else is left as it is."""
    try:
        found = await client.get_workflow_handle(id).describe()
        why = why_not_ours(found)
        if why is None or found.status is not WorkflowExecutionStatus.RUNNING:
            return
        reason = f"It is not the workflow that durable runs under this id: {why}."
        log.warning("%s is ended. %s", id, reason)
        # This run and no other: ours may have begun meanwhile.
        await client.get_workflow_handle(id, run_id=found.run_id).terminate(reason=reason)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # there is none, or it has just ended
            raise


async def _start(client: Client, kind: str, options: Mapping[str, Any], input: object) -> bool:
    """Whether it was started; not if anything has its id."""
    given = [] if input is None else [input]
    alone: dict[str, Any] = {**options, "id_conflict_policy": WorkflowIDConflictPolicy.FAIL}
    try:
        await client.start_workflow(kind, args=given, **alone)  # pyright: ignore[reportUnknownMemberType]
    except WorkflowAlreadyStartedError:
        return False
    return True
