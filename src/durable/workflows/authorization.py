"""A message of a person is judged by the authority before a workflow acts on it."""

from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.authorize import AuthorizationActivities, AuthorizeStep
    from durable.model.operators.rights import Delivery, Scope
    from durable.model.refusal import RefusalCode
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, refusal, refusal_in, sentence_of
    from durable.workflows.inbox import REQUESTS_KEPT, Envelope, MessageLog
    from durable.workflows.steps import run_step

RUNS_KEPT = 20


async def refuse_unauthorized(envelope: Envelope[Any], scope: Scope, log: MessageLog) -> None:
    """Raises why the message must not be acted on: by its actor's rights, or nobody can tell."""
    asked, verb = envelope.request_message, envelope.message.verb
    if asked is None or verb is None:
        return
    step = AuthorizeStep(
        asked=asked,
        verb=verb,
        scope=scope,
        delivery=_delivery(envelope, log),
        was_signed=envelope.repeats is not None,
    )
    try:
        await run_step(
            AuthorizationActivities.authorize,
            step,
            f"may {asked.actor} {verb} on {scope}?",
            timeouts.AUTHORIZE_RETRY,
        )
    except STEP_FAILURES as error:
        sentence = (
            f"The rights of {asked.actor} could not be read, so nothing was changed: "
            f"{sentence_of(error)} Send it again when the global side answers."
        )
        raise refusal_in(error) or refusal(RefusalCode.WRONG_STATE, sentence) from error


def _delivery(envelope: Envelope[Any], log: MessageLog) -> Delivery | None:
    """Which message this is, if its request is not counted by the authority anyway."""
    if envelope.request is None:
        return None
    run = workflow.info().run_id
    if run not in log.runs[-1:]:
        log.runs = [*log.runs[1 - RUNS_KEPT :], run]
    return Delivery(runs=tuple(log.runs), number=envelope.number, remembers=REQUESTS_KEPT)
