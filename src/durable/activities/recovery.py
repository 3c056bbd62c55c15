"""The steps of a recovery, each an activity of its own name, and the orders of people.

Each is idempotent: an order by its request id, and a step is decided from what the authority
knows, so that one that is taken again after a crash or a timeout finds what it did.
"""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity
from temporalio.client import Client

from durable.activities.failures import refusal_failure
from durable.activities.recovery_executor import RecoveryExecutor
from durable.authority.db.connection import Databases
from durable.authority.recovery.recoveries import take_order
from durable.failpoints import Failpoint, reach
from durable.model.operators.rights import OperatorMessage, OrderAnswer
from durable.model.recovery.recoveries import (
    Recovery,
)
from durable.model.recovery.steps import RecoveryStep, RecoveryStepInput, RecoveryStepOutcome
from durable.model.refusal import RefusedError
from durable.signals.sending import SignalSender


class RecoveryActivities:
    """Activities of the global worker."""

    def __init__(self, databases: Databases, client: Client) -> None:
        self._databases = databases
        self._executor = RecoveryExecutor(databases, SignalSender(client))

    @activity.defn
    async def order_recovery(self, message: OperatorMessage) -> OrderAnswer[Recovery]:
        """Takes an order, once per request id, from an actor who may give it."""
        try:
            taken = await take_order(self._databases, message)
        except RefusedError as error:
            raise refusal_failure(error) from error
        reach(Failpoint.AFTER_RECOVERY_ORDER)
        return taken

    # ── one activity for each step, so that a history reads: evidence, fence, draw, move out ... ─

    @activity.defn(name=RecoveryStep.EVIDENCE.value)
    async def evidence(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.EVIDENCE, given)

    @activity.defn(name=RecoveryStep.FENCE.value)
    async def fence(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.FENCE, given)

    @activity.defn(name=RecoveryStep.DRAW.value)
    async def draw(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.DRAW, given)

    @activity.defn(name=RecoveryStep.MOVE_OUT.value)
    async def move_out(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.MOVE_OUT, given)

    @activity.defn(name=RecoveryStep.MEASURE.value)
    async def measure(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.MEASURE, given)

    @activity.defn(name=RecoveryStep.HOLD.value)
    async def hold(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.HOLD, given)

    @activity.defn(name=RecoveryStep.OPEN.value)
    async def open(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.OPEN, given)

    @activity.defn(name=RecoveryStep.MOVE_BACK.value)
    async def move_back(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.MOVE_BACK, given)

    @activity.defn(name=RecoveryStep.CLOSE.value)
    async def close(self, given: RecoveryStepInput) -> RecoveryStepOutcome:
        return await self._take(RecoveryStep.CLOSE, given)

    async def _take(self, step: RecoveryStep, given: RecoveryStepInput) -> RecoveryStepOutcome:
        try:
            return await self._executor.take(step, given)
        except RefusedError as error:
            raise refusal_failure(error) from error

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (
            self.order_recovery, self.evidence, self.fence, self.draw, self.move_out, self.measure,
            self.hold, self.open, self.move_back, self.close,
        )  # fmt: skip
