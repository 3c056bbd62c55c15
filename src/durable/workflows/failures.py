"""How a step that could not be taken arrives in a workflow, and how a message is refused there."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, TimeoutError

with workflow.unsafe.imports_passed_through():
    from durable.model.refusal import RefusalCode

# A local activity that gave up arrives as its own error, any other as an ActivityError around it.
STEP_FAILURES = (ActivityError, ApplicationError, TimeoutError)


def cause_of(error: FailureError) -> BaseException:
    """What the activity itself raised."""
    return error.cause if isinstance(error, ActivityError) and error.cause is not None else error


def said_by(error: FailureError) -> str:
    """Its own words, to be shown to people."""
    cause = cause_of(error)
    words = cause.message if isinstance(cause, FailureError) else str(cause)
    return words or "no answer"


def refusal(code: RefusalCode, sentence: str) -> ApplicationError:
    """A no to whoever sent a message: its code goes along for programs."""
    return ApplicationError(sentence[:500], code.value)
