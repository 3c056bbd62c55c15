"""How a step that failed arrives in a workflow, and how a message is refused there."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, TimeoutError

with workflow.unsafe.imports_passed_through():
    from durable.activities.failures import ELSEWHERE, REFUSED
    from durable.model.refusal import RefusalCode
    from durable.validation.text import shorten

# A local activity that gave up arrives as its own error, any other as an ActivityError around it.
STEP_FAILURES = (ActivityError, ApplicationError, TimeoutError)


def cause_of(error: FailureError) -> BaseException:
    """What the activity itself raised."""
    return error.cause if isinstance(error, ActivityError) and error.cause is not None else error


def sentence_of(error: FailureError) -> str:
    """The failure in its own words."""
    cause = cause_of(error)
    words = cause.message if isinstance(cause, FailureError) else str(cause)
    return words or "no answer"


def refusal(code: RefusalCode, sentence: str) -> ApplicationError:
    """A no to the sender of a message, with its code for programs."""
    return ApplicationError(shorten(sentence), code.value)


def refusal_in(error: FailureError) -> ApplicationError | None:
    """The refusal with which a step failed, as one to the sender of a message."""
    cause = cause_of(error)
    if isinstance(cause, ApplicationError) and cause.type == REFUSED:
        return refusal(RefusalCode(cause.details[0]), cause.message)
    return None


def fail_if_elsewhere(error: FailureError) -> None:
    """Ends a workflow that runs on the queue of another region than its own."""
    cause = cause_of(error)
    if isinstance(cause, ApplicationError) and cause.type == ELSEWHERE:
        raise refusal(RefusalCode.INVALID, cause.message) from error
