"""How a step that could not be taken arrives in a workflow, whatever it went through on its way."""

from temporalio.exceptions import ActivityError, ApplicationError, FailureError, TimeoutError

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
