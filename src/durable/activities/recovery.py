"""The steps of a recovery: order and advance.

Each is idempotent: an order by its request id, and every step is decided anew from what the
authority knows, so that one that is taken again after a crash or a timeout finds what it did.
"""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity
from temporalio.client import Client

from durable.activities.recovery_stages import RecoveryStages
from durable.activities.recovery_steps import RecoveryOrderStep
from durable.activities.workload import refusal_failure
from durable.authority.db.connection import Databases
from durable.authority.recovery.recoveries import take_order
from durable.failpoints import Failpoint, reach
from durable.model.recovery.recoveries import Recovery, RecoveryKey, RecoveryProgress
from durable.model.refusal import RefusedError
from durable.signals.sending import SignalSender


class RecoveryActivities:
    """Activities of the global worker."""

    def __init__(self, databases: Databases, client: Client) -> None:
        self._databases = databases
        self._stages = RecoveryStages(databases, SignalSender(client))

    @activity.defn
    async def order_recovery(self, step: RecoveryOrderStep) -> Recovery:
        """Takes an order, once per request id, from somebody who may give it."""
        try:
            taken = await take_order(self._databases, step.order, asked=step.asked)
        except RefusedError as error:
            raise refusal_failure(error) from error
        reach(Failpoint.AFTER_RECOVERY_ORDER)
        return taken

    @activity.defn
    async def advance_recovery(self, key: RecoveryKey) -> RecoveryProgress | None:
        """Takes the steps that can be taken now; None while nobody knows of such a loss."""
        try:
            return await self._stages.advance(key)
        except RefusedError as error:
            raise refusal_failure(error) from error

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.order_recovery, self.advance_recovery)
