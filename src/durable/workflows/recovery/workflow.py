"""Moves the work of one lost region elsewhere, measures that, and takes it back.

What was moved, which budgets are open and what was measured are rows of the authority. It runs on
the global queue: the lost region's own may have no worker left that asks for work.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.recovery import RecoveryActivities
    from durable.model.recovery.recoveries import RecoveryKey, RecoveryProgress
    from durable.model.recovery.steps import RecoveryStep, RecoveryStepInput, RecoveryStepOutcome
    from durable.model.refusal import RefusalCode
    from durable.signals.names import RECOVERY
    from durable.signals.recoveries import RecoveryStatus
    from durable.signals.registry import messages_to
    from durable.workflows import timeouts
    from durable.workflows.failures import refusal
    from durable.workflows.handlers import accepts
    from durable.workflows.inbox import Envelope
    from durable.workflows.orders import Memory, OrderWorkflow
    from durable.workflows.steps import UNREACHABLE, Activity

# A round ends by itself; this only bounds one that does not.
STEPS_AT_ONCE = 20
STEPS: Mapping[RecoveryStep, Activity[RecoveryStepOutcome]] = {
    RecoveryStep.EVIDENCE: RecoveryActivities.evidence,
    RecoveryStep.FENCE: RecoveryActivities.fence,
    RecoveryStep.DRAW: RecoveryActivities.draw,
    RecoveryStep.MOVE_OUT: RecoveryActivities.move_out,
    RecoveryStep.MEASURE: RecoveryActivities.measure,
    RecoveryStep.HOLD: RecoveryActivities.hold,
    RecoveryStep.OPEN: RecoveryActivities.open,
    RecoveryStep.MOVE_BACK: RecoveryActivities.move_back,
    RecoveryStep.CLOSE: RecoveryActivities.close,
}


@dataclass
class RecoveryMemory(Memory):
    progress: RecoveryProgress | None = None
    # The authority has a row of it, whether or not it was looked at yet.
    is_begun: bool = False
    # With which step the next round begins.
    next: RecoveryStep = RecoveryStep.EVIDENCE


@workflow.defn(name=RECOVERY)
@accepts(messages_to(RECOVERY))
class RecoveryWorkflow(OrderWorkflow[RecoveryKey, RecoveryMemory]):
    memory = RecoveryMemory
    first_order = "a person to confirm or veto a loss"
    unknown = RefusalCode.UNKNOWN_REGION

    def key_of(self, id: str) -> RecoveryKey:
        try:
            return RecoveryKey.of_id(id)
        except ValueError:
            sentence = (
                f"{id[:100]} names no loss; `durable recovery declare REGION` starts a recovery "
                "as recovery/REGION/EPOCH."
            )
            raise refusal(RefusalCode.INVALID, sentence) from None

    async def recall(self) -> bool:
        await self.advance()
        return True

    @property
    def is_ordered(self) -> bool:
        return self._memory.is_begun

    @property
    def has_ended(self) -> bool:
        progress = self._memory.progress
        return progress is not None and progress.recovery.has_ended

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @workflow.query(name="status", description="What was moved, what waits, and the objective.")
    def status(self) -> RecoveryStatus:
        memory, key = self._memory, self._key
        return RecoveryStatus(
            region=key.region, epoch=key.epoch, progress=memory.progress, **memory.shown()
        )

    async def _order(self, envelope: Envelope[Any]) -> str:
        """Has the authority take the order: rights and what is allowed are its rows' to say."""
        summary = f"take the {envelope.message.name}"
        message = envelope.request_message
        taken = await self.ask(RecoveryActivities.order_recovery, message, summary)
        self._memory.is_begun, self._memory.next = True, RecoveryStep.EVIDENCE
        return taken.sentence

    on_confirm = on_veto = on_failback = on_settle = _order

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def advance(self) -> None:
        """Takes steps until the recovery rests; which one comes next, each of them answers."""
        memory = self._memory
        step, given = memory.next, RecoveryStepInput(key=self._key)
        for _ in range(STEPS_AT_ONCE):
            taken = await self.step(STEPS[step], given, step.value)
            if taken is UNREACHABLE:
                return
            memory.is_begun = taken.next is not None
            if taken.next is None:
                memory.progress = None
                return
            step, given = taken.next, RecoveryStepInput(key=self._key, round=taken.round)
            memory.next = step
            if taken.progress is not None:
                memory.progress = taken.progress
                return

    # ── reporting, resting ──────────────────────────────────────────────────────────────────────

    def rest(self) -> tuple[timedelta, str]:
        progress = self._memory.progress
        if progress is None:
            return timeouts.RECOVERY_LOOK, self.first_order
        longest = timeouts.RECOVERY_LOOK
        return timeouts.rest_for(progress.look_in, longest), progress.waits_for
