"""A message of a person is judged by the authority before a workflow acts on it."""

from typing import Any, TypeVar

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.messages import AuthorizationActivities, AuthorizeStep, CountStep
    from durable.model.operators.rights import CountedRequest, Scope, SlotEffect
    from durable.model.refusal import RefusalCode
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, refusal, refusal_in, sentence_of
    from durable.workflows.inbox import Envelope
    from durable.workflows.steps import Activity, run_step

T = TypeVar("T")


async def recall_or_authorize(envelope: Envelope[Any], scope: Scope) -> str | None:
    """What the message was answered before; None if it is new, and its actor has the right.

    Raises why it must not be acted on: by the actor's rights, or because they cannot be read.
    """
    message, verb = envelope.request_message, envelope.message.verb
    if message is None or verb is None:
        return None
    step = AuthorizeStep(message=message, verb=verb, scope=scope)
    return await _judge(AuthorizationActivities.authorize, step)


async def count(
    envelope: Envelope[Any], scope: Scope, answer: str | None, effect: SlotEffect
) -> CountedRequest | None:
    """The same for what is done in memory; it is counted with the answer and the effect."""
    message, verb = envelope.request_message, envelope.message.verb
    assert message is not None, "a person's message"
    assert verb is not None, "people need a right"
    step = CountStep(message=message, verb=verb, scope=scope, answer=answer, effect=effect)
    return await _judge(AuthorizationActivities.count, step)


async def _judge(activity: Activity[T], step: AuthorizeStep) -> T:
    actor = step.message.actor
    summary = f"may {actor} {step.verb} on {step.scope}?"
    try:
        return await run_step(activity, step, summary, timeouts.AUTHORIZE_RETRY)
    except STEP_FAILURES as error:
        sentence = (
            f"The rights of {actor} could not be read, so nothing was changed: "
            f"{sentence_of(error)} Send it again when the global side answers."
        )
        raise refusal_in(error) or refusal(RefusalCode.WRONG_STATE, sentence) from error
