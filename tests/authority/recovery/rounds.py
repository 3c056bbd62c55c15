"""One round of a recovery without its workflow."""

from durable.activities.recovery_executor import RecoveryExecutor
from durable.model.recovery.recoveries import RecoveryKey, RecoveryProgress
from durable.model.recovery.steps import RecoveryStep, RecoveryStepInput

STEPS_AT_ONCE = 20


async def advance(executor: RecoveryExecutor, key: RecoveryKey) -> RecoveryProgress | None:
    """Takes steps until the recovery rests, as its workflow does; None: no such loss."""
    step, given = RecoveryStep.EVIDENCE, RecoveryStepInput(key=key)
    for _ in range(STEPS_AT_ONCE):
        taken = await executor.take(step, given)
        if taken.next is None or taken.progress is not None:
            return taken.progress
        step, given = taken.next, RecoveryStepInput(key=key, round=taken.round)
    raise AssertionError("it does not rest")
