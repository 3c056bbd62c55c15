"""Moves the work of one lost region elsewhere, measures that, and takes it back.

It only remembers its messages and waits. What was moved, which budgets are open and what was
measured are rows of the authority, so that one that was terminated goes on where it was. It runs on
the global queue: the lost region's own may have nobody left who asks for work.
"""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.recovery import RecoveryActivities
    from durable.activities.recovery_steps import RecoveryOrderStep
    from durable.activities.workload import WorkloadActivities
    from durable.model.ids import RegionId
    from durable.model.operators.rights import OperatorMessage
    from durable.model.recovery.recoveries import (
        Recovery as RecoveryFact,
    )
    from durable.model.recovery.recoveries import (
        RecoveryKey,
        RecoveryOrder,
        RecoveryOrderKind,
        RecoveryStage,
    )
    from durable.model.refusal import RefusalCode
    from durable.signals import payloads, recoveries, search_attributes
    from durable.signals.names import RECOVERY
    from durable.signals.recoveries import RecoveryStatus
    from durable.signals.registry import messages_to
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, refusal_in, sentence_of
    from durable.workflows.handlers import Receives, accepts
    from durable.workflows.inbox import Inbox
    from durable.workflows.recovery.page import recovery_page
    from durable.workflows.recovery.state import RecoveryMemory, start_of
    from durable.workflows.starts import NO_INPUT, start_or_refusal
    from durable.workflows.steps import ask_step, audit_messages, run_step

MESSAGES = messages_to(RECOVERY)
# Of a workflow whose id names no loss, and which fails at once.
NO_LOSS = RecoveryKey(region=RegionId("none"), epoch=2)


@workflow.defn(name=RECOVERY)
@accepts(MESSAGES)
class Recovery(Receives):
    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        nothing = (NO_LOSS, RecoveryMemory())
        (self._key, self._memory), self._wrong_start = start_or_refusal(
            lambda: start_of(raw), nothing
        )
        self._inbox = Inbox(MESSAGES, self._memory.messages)
        self._shown = ""
        self._began = workflow.now()

    @workflow.run
    async def run(self, raw: RawValue = NO_INPUT) -> RecoveryStatus:
        if self._wrong_start is not None:
            raise self._wrong_start
        while True:
            await self._read_messages()
            await audit_messages(self._memory.messages, WorkloadActivities.audit)
            await self._advance()
            self._report()
            if self._is_over() or self._inbox.is_full():
                await self._inbox.let_handlers_finish()
            if self._has_ended():
                return self.status()
            if self._inbox.is_full() and self._inbox.is_idle:
                workflow.continue_as_new(self._memory)
            await self._inbox.rest(*self._next_wake())

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @workflow.query(name="status", description="What was moved, what waits, and the objective.")
    def status(self) -> RecoveryStatus:
        return self._memory.status(self._key.region, self._key.epoch)

    async def _read_messages(self) -> None:
        while (envelope := self._inbox.next()) is not None:
            handle: Any = getattr(self, f"on_{envelope.message.name}")
            try:
                self._inbox.accept(
                    envelope, await handle(envelope.payload, envelope.request_message)
                )
            except ApplicationError as refused:
                self._inbox.refuse(envelope, refused)

    async def on_confirm(self, confirm: recoveries.ConfirmLoss, asked: OperatorMessage) -> str:
        taken = await self._order(confirm, asked, RecoveryOrderKind.CONFIRM)
        if taken.stage is RecoveryStage.CONFIRMED:
            return f"{self._key.region} is being fenced, and its work moved elsewhere."
        return f"The recovery of {self._key.region} is under way: {taken.stage}."

    async def on_veto(self, veto: recoveries.VetoLoss, asked: OperatorMessage) -> str:
        await self._order(veto, asked, RecoveryOrderKind.VETO)
        return f"{self._key.region} is not taken for lost as it looks now; nothing was changed."

    async def on_failback(self, back: recoveries.FailBack, asked: OperatorMessage) -> str:
        await self._order(back, asked, RecoveryOrderKind.FAILBACK)
        return f"{self._key.region} is opened once it answers, and gets its work back."

    async def on_settle(self, settle: recoveries.SettleRecovery, asked: OperatorMessage) -> str:
        await self._order(settle, asked, RecoveryOrderKind.SETTLE)
        return f"What was moved stays; {self._key.region} takes new work once it answers."

    async def on_look(self, look: payloads.Look, asked: None) -> str:
        """A hint: what changed is read from the authority."""
        return "Looking."

    async def _order(
        self, request: payloads.OperatorRequest, asked: OperatorMessage, kind: RecoveryOrderKind
    ) -> RecoveryFact:
        """Has the authority take the order: rights and what is allowed are its rows' to say."""
        order = RecoveryOrder(
            key=self._key,
            kind=kind,
            request=request.request_id,
            actor=request.actor,
            reason=request.reason,
        )
        step = RecoveryOrderStep(order=order, asked=asked)
        return await ask_step(RecoveryActivities.order_recovery, step, f"take the {kind}")

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def _advance(self) -> None:
        """Takes the steps that can be taken now, and learns what comes next."""
        memory = self._memory
        stage = "begin" if memory.progress is None else memory.progress.recovery.stage
        summary = f"take the next steps ({stage})"
        try:
            progress = await run_step(RecoveryActivities.advance_recovery, self._key, summary)
        except STEP_FAILURES as error:
            refused = refusal_in(error)
            if refused is not None:
                memory.is_refused = refused.details[0] == RefusalCode.UNKNOWN_REGION.value
            memory.unreachable = f"Could not {summary}: {sentence_of(error)}"[:500]
            return
        memory.progress, memory.unreachable = progress, ""

    # ── reporting, resting, ending ──────────────────────────────────────────────────────────────

    def _report(self) -> None:
        status = self.status()
        workflow.set_current_details(recovery_page(status, self._inbox.fresh_request_id()))
        stage = "" if status.stage is None else status.stage.value
        if stage and stage != self._shown:
            self._shown = stage
            workflow.upsert_search_attributes(  # pyright: ignore[reportUnknownMemberType]
                [search_attributes.PHASE.value_set(stage)]
            )

    def _next_wake(self) -> tuple[timedelta, str]:
        memory = self._memory
        if memory.unreachable:
            return timeouts.UNREACHABLE_RETRY, memory.unreachable
        if memory.is_over:
            return timeouts.AUDIT_RETRY, "the audit"
        if memory.progress is None:
            return timeouts.RECOVERY_LOOK, "somebody to confirm or veto a loss"
        wait = timeouts.RECOVERY_LOOK
        if memory.progress.look_at is not None:
            # The authority's clock decides; this only says when it is worth asking.
            until = memory.progress.look_at - workflow.now()
            wait = min(wait, max(until, timeouts.SHORTEST_REST))
        return wait, memory.progress.waits_for

    def _was_never_begun(self) -> bool:
        """Nobody knows of a loss: the suspicion passed, or the first message was refused."""
        memory = self._memory
        if memory.progress is not None or memory.unreachable:
            return False
        is_refused = memory.messages.rejected_count > 0
        return is_refused or workflow.now() - self._began > timeouts.FIRST_APPLY

    def _is_over(self) -> bool:
        return self._memory.is_over or self._was_never_begun()

    def _has_ended(self) -> bool:
        return self._is_over() and self._inbox.is_idle and not self._memory.messages.unaudited
