"""How a step fails where no later try would change that: refused, or on the wrong worker."""

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from durable.model.ids import RegionId
from durable.model.refusal import RefusedError
from durable.signals.names import regional_queue

# The type of the failure that carries a refusal's sentence, with its code as a detail.
REFUSED = "refused"
# The type of the failure that no later try would change.
ELSEWHERE = "elsewhere"


def refuse_elsewhere(own: RegionId, asked: RegionId) -> None:
    """A workflow started by hand may be on any task queue, and so on any worker."""
    if asked != own:
        raise ApplicationError(
            f"This worker takes steps in {own}, not in {asked}; start it on the task queue "
            f"{regional_queue(asked)}.",
            type=ELSEWHERE,
            non_retryable=True,
            category=ApplicationErrorCategory.BENIGN,
        )


def refusal_failure(error: RefusedError) -> ApplicationError:
    """A refusal as workflows and their callers see it: final, expected, and in a sentence."""
    return ApplicationError(
        error.refusal.sentence,
        error.refusal.code.value,
        type=REFUSED,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )
