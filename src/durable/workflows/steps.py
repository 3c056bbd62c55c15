"""Taking a step: one idempotent local activity, under one set of limits."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from durable.activities.messages import AuditMessages
    from durable.activities.workload import WorkloadActivities
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES
    from durable.workflows.inbox import MessageLog

T = TypeVar("T")

AUDITED_AT_ONCE = 100

Activity = Callable[[Any, Any], Awaitable[T]]

# What a step answers when the authority could not be reached; the workflow takes it again later.
UNREACHABLE: Any = object()


async def run_step(
    activity: Activity[T],
    argument: object,
    summary: str,
    retry_policy: RetryPolicy = timeouts.STEP_RETRY,
) -> T:
    """The activity's answer, or one of STEP_FAILURES."""
    return await workflow.execute_local_activity_method(
        activity,  # pyright: ignore[reportArgumentType]
        argument,
        start_to_close_timeout=timeouts.STEP,
        retry_policy=retry_policy,
        summary=summary,
    )


async def audit_messages(log: MessageLog) -> None:
    """Writes messages into the audit; those that cannot be written now are tried again later.

    Every worker has a step of this name, which writes into the chain of its own side.
    """
    info = workflow.info()
    # The first run stays the same through continue-as-new, and differs in another life of this id.
    life = f"{info.workflow_id}/{info.first_execution_run_id}"
    while log.unaudited and (log.audit_at is None or log.audit_at <= workflow.now()):
        batch = tuple(log.unaudited[:AUDITED_AT_ONCE])
        step = AuditMessages(target=info.workflow_id, messages=batch, life=life)
        try:
            await run_step(WorkloadActivities.audit, step, "write messages into the audit")
        except STEP_FAILURES:
            log.audit_at = workflow.now() + timeouts.AUDIT_RETRY
            return
        log.audit_at = None
        log.audited_count += len(batch)
        log.unaudited = log.unaudited[len(batch) :]
