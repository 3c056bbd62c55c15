"""Taking a step: one idempotent local activity, under one set of limits."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from durable.activities.audit import AuditMessages
    from durable.model.refusal import RefusalCode
    from durable.workflows import timeouts
    from durable.workflows.failures import (
        STEP_FAILURES,
        fail_if_elsewhere,
        refusal,
        refusal_in,
        sentence_of,
    )
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


async def ask_step(
    activity: Activity[T], argument: object, summary: str, whom: str = "The authority"
) -> T:
    """A step that a message asks for; its refusal is the answer to the sender."""
    try:
        return await run_step(activity, argument, summary, timeouts.ADMIT_RETRY)
    except STEP_FAILURES as error:
        why = f"{whom} does not answer: {sentence_of(error)}; send it again."
        raise refusal_in(error) or refusal(RefusalCode.WRONG_STATE, why) from error


class Retrying(Protocol):
    """A memory that says why a step could not be taken."""

    unreachable: str


async def try_step(memory: Retrying, activity: Activity[T], argument: object, summary: str) -> T:
    """A step that is taken again later when it fails now."""
    try:
        answer = await run_step(activity, argument, summary)
    except STEP_FAILURES as error:
        fail_if_elsewhere(error)
        memory.unreachable = f"Could not {summary}: {sentence_of(error)}"[:500]
        return UNREACHABLE
    memory.unreachable = ""
    return answer


async def audit_messages(log: MessageLog, activity: Activity[None]) -> None:
    """Writes messages into the audit; those that cannot be written now are tried again later."""
    info = workflow.info()
    # The first run stays the same through continue-as-new, and differs in another life of this id.
    life = f"{info.workflow_id}/{info.first_execution_run_id}"
    while log.unaudited and (log.audit_at is None or log.audit_at <= workflow.now()):
        batch = tuple(log.unaudited[:AUDITED_AT_ONCE])
        key = f"{life}/{log.audited_count}"
        step = AuditMessages(target=info.workflow_id, messages=batch, key=key)
        try:
            await run_step(activity, step, "write messages into the audit")
        except STEP_FAILURES:
            log.audit_at = workflow.now() + timeouts.AUDIT_RETRY
            return
        log.audit_at = None
        log.audited_count += len(batch)
        log.unaudited = log.unaudited[len(batch) :]
