"""Taking a step: one idempotent local activity, under the one set of limits."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import Rejected
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES
    from durable.workflows.inbox import MessageRecord

T = TypeVar("T")

AUDITED_AT_ONCE = 100

Activity = Callable[[Any, Any], Awaitable[T]]


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


async def audit_people(record: MessageRecord, activity: Activity[None]) -> None:
    """Writes down what people sent; what cannot be written now is tried again later."""
    name = workflow.info().workflow_id
    while record.unaudited and (record.audit_at is None or record.audit_at <= workflow.now()):
        sent = tuple(record.unaudited[:AUDITED_AT_ONCE])
        rejected = Rejected(target=name, messages=sent, key=f"{name}/{record.audited}")
        try:
            await run_step(activity, rejected, "write what was sent into the audit")
        except STEP_FAILURES:
            record.audit_at = workflow.now() + timeouts.AUDIT_AGAIN
            return
        record.audit_at = None
        record.audited += len(sent)
        record.unaudited = record.unaudited[len(sent) :]
