"""What the run before this one left behind: believed only where no person can have written it."""

from typing import TypeVar

from temporalio import workflow

T = TypeVar("T")


def continued(memory: T | None) -> T | None:
    """The memory in a run's input, if that input came by continue-as-new.

    Anyone who can start a workflow chooses its first input. A retry and a cron run get that input
    again, with a run before them; only continue-as-new begins with the first attempt.
    """
    if memory is None:
        return None
    info = workflow.info()
    by_itself = info.attempt == 1 and not info.cron_schedule
    return memory if info.continued_run_id is not None and by_itself else None
