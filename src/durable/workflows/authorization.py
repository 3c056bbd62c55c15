"""A message of a person is judged by the authority before a workflow acts on it."""

from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.messages import AuthorizationActivities, AuthorizeStep
    from durable.model.operators.rights import Scope
    from durable.model.refusal import RefusalCode
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, refusal, refusal_in, sentence_of
    from durable.workflows.inbox import Envelope
    from durable.workflows.steps import run_step


async def recall_or_authorize(
    envelope: Envelope[Any],
    scope: Scope,
    *,
    run: str | None = None,
    is_done: bool = False,
    answer: str | None = None,
) -> str | None:
    """What the message was answered before; None if it is new, and its actor has the right.

    Raises why it must not be acted on: by the actor's rights, or because they cannot be read.
    """
    message, verb = envelope.request_message, envelope.message.verb
    if message is None or verb is None:
        return None
    step = AuthorizeStep(
        message=message, verb=verb, scope=scope, run=run, is_done=is_done, answer=answer
    )
    try:
        return await run_step(
            AuthorizationActivities.authorize,
            step,
            f"may {message.actor} {verb} on {scope}?",
            timeouts.AUTHORIZE_RETRY,
        )
    except STEP_FAILURES as error:
        sentence = (
            f"The rights of {message.actor} could not be read, so nothing was changed: "
            f"{sentence_of(error)} Send it again when the global side answers."
        )
        raise refusal_in(error) or refusal(RefusalCode.WRONG_STATE, sentence) from error
