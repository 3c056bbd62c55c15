"""Steps of a region are taken by its own worker alone."""

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from durable.model.ids import RegionId
from durable.signals.names import regional_queue

# The type of the failure that no later try would change.
ELSEWHERE = "elsewhere"


def refuse_elsewhere(own: RegionId, asked: RegionId) -> None:
    """Whoever starts a workflow by hand chooses its task queue, and so the worker that runs it."""
    if asked != own:
        raise ApplicationError(
            f"This worker takes steps in {own}, not in {asked}; start it on the task queue "
            f"{regional_queue(asked)}.",
            type=ELSEWHERE,
            non_retryable=True,
            category=ApplicationErrorCategory.BENIGN,
        )
