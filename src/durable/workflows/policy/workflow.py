"""Brings one policy revision into force, region by region, or takes it back.

It only remembers its messages and waits. Where the revision is, which order it follows and how long
a region was watched are rows of the authority, so that one that was terminated goes on where it
was. Every step is decided anew from those rows.
"""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from durable.activities.policy import PolicyActivities
    from durable.activities.policy_steps import OrderStep, PolicyKey
    from durable.activities.workload import REFUSED, WorkloadActivities
    from durable.model.operators.rights import OperatorMessage
    from durable.model.policy.rollout import (
        PolicyOrder,
        PolicyOrderKind,
        PolicyRollout,
        PolicyStage,
    )
    from durable.model.refusal import RefusalCode
    from durable.signals import payloads, policies, search_attributes
    from durable.signals.names import POLICY
    from durable.signals.policies import PolicyStatus
    from durable.signals.registry import messages_to
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, cause_of, sentence_of
    from durable.workflows.handlers import Receives, accepts
    from durable.workflows.inbox import Inbox
    from durable.workflows.policy.page import policy_page
    from durable.workflows.policy.rest import rest_of
    from durable.workflows.policy.state import PolicyMemory, PolicyStart, start_of
    from durable.workflows.starts import NO_INPUT, start_or_refusal
    from durable.workflows.steps import ask_step, audit_messages, run_step

MESSAGES = messages_to(POLICY)
# Of a workflow that was started with something else than a revision, and fails at once.
NO_REVISION = 1


@workflow.defn(name=POLICY)
@accepts(MESSAGES)
class Policy(Receives):
    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        nothing = PolicyStart(NO_REVISION, PolicyMemory())
        start, self._wrong_start = start_or_refusal(lambda: start_of(raw), nothing)
        self._revision, self._memory = start.revision, start.memory
        self._inbox = Inbox(MESSAGES, self._memory.messages)
        self._shown = ""

    @workflow.run
    async def run(self, raw: RawValue = NO_INPUT) -> PolicyStatus:
        if self._wrong_start is not None:
            raise self._wrong_start
        await self._advance()
        # Before anything is read: whoever promotes it at once finds it compared.
        await self._shadow()
        while True:
            await self._read_messages()
            await audit_messages(self._memory.messages, WorkloadActivities.audit)
            problem = await self._shadow()
            await self._advance()
            self._memory.unreachable = self._memory.unreachable or problem
            self._report()
            if self._memory.is_over or self._inbox.is_full():
                await self._inbox.let_handlers_finish()
            if self._has_ended():
                return self.status()
            if self._inbox.is_full() and self._inbox.is_idle:
                workflow.continue_as_new(PolicyStart(self._revision, self._memory))
            await self._inbox.rest(*self._next_wake())

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @workflow.query(name="status", description="Where the revision is, and what it waits for.")
    def status(self) -> PolicyStatus:
        return self._memory.status(self._revision)

    async def _read_messages(self) -> None:
        while (envelope := self._inbox.next()) is not None:
            handle: Any = getattr(self, f"on_{envelope.message.name}")
            try:
                self._inbox.accept(
                    envelope, await handle(envelope.payload, envelope.request_message)
                )
            except ApplicationError as refused:
                self._inbox.refuse(envelope, refused)

    async def on_promote(self, promote: policies.PromotePolicy, asked: OperatorMessage) -> str:
        given = {"canary": promote.canary}
        taken = await self._order(promote, asked, PolicyOrderKind.PROMOTE, **given)
        if taken.stage is PolicyStage.CANARY and taken.bake is None:
            return f"Revision {self._revision} comes into force in {taken.canary} first."
        return f"Revision {self._revision} goes on from {taken.stage}."

    async def on_pause(self, pause: policies.PausePolicy, asked: OperatorMessage) -> str:
        await self._order(pause, asked, PolicyOrderKind.PAUSE)
        return f"Revision {self._revision} is paused: it stays where it is, and goes nowhere else."

    async def on_rollback(self, back: policies.RollBackPolicy, asked: OperatorMessage) -> str:
        given = {"to_revision": back.to, "reroll": back.reroll}
        await self._order(back, asked, PolicyOrderKind.ROLLBACK, **given)
        replaced = "is replaced" if back.reroll else "goes on"
        return (
            f"Revision {self._revision} is being rolled back: what is reserved and not bound is "
            f"decided again, and what is bound {replaced}."
        )

    async def on_look(self, look: payloads.Look, asked: None) -> str:
        """A hint: what changed is read from the authority."""
        return "Looking."

    async def _order(
        self,
        request: policies.PolicyRequest,
        asked: OperatorMessage,
        kind: PolicyOrderKind,
        **given: Any,
    ) -> PolicyRollout:
        """Has the authority take the order: rights, numbers and what is allowed are its rows'."""
        order = PolicyOrder(
            revision=self._revision,
            kind=kind,
            actor=request.actor,
            reason=request.reason,
            request=request.request_id,
            after=request.after,
            **given,
        )
        step = OrderStep(order=order, asked=asked)
        taken = await ask_step(PolicyActivities.order_policy, step, f"take the {kind}")
        memory = self._memory
        if memory.progress is not None:
            # Whoever was answered must not be shown what was before.
            memory.progress = memory.progress.model_copy(update={"rollout": taken})
        return taken

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def _shadow(self) -> str:
        """Compares it with each region's recent decisions before it is promoted; or why not."""
        progress = self._memory.progress
        if progress is None or progress.rollout.stage is not PolicyStage.SHADOW:
            return ""
        if not set(progress.regions).difference(one.region for one in progress.shadows):
            return ""
        try:
            await workflow.execute_activity_method(
                PolicyActivities.shadow_policy,
                PolicyKey(revision=self._revision),
                start_to_close_timeout=timeouts.SHADOW,
                retry_policy=timeouts.STEP_RETRY,
                summary="decide recent decisions again",
            )
        except FailureError as error:
            return f"Could not compare: {sentence_of(error)}"[:500]
        return ""

    async def _advance(self) -> None:
        """Takes the steps that can be taken now, and learns what comes next."""
        memory, key = self._memory, PolicyKey(revision=self._revision)
        try:
            memory.progress = await run_step(
                PolicyActivities.advance_policy, key, "take the next step"
            )
        except STEP_FAILURES as error:
            cause = cause_of(error)
            if isinstance(cause, ApplicationError) and cause.type == REFUSED:
                memory.is_refused = cause.details[0] == RefusalCode.UNKNOWN_POLICY.value
            memory.unreachable = f"Could not go on: {sentence_of(error)}"[:500]
            return
        memory.unreachable = ""

    # ── reporting, resting, ending ──────────────────────────────────────────────────────────────

    def _report(self) -> None:
        status = self.status()
        workflow.set_current_details(policy_page(status, self._inbox.fresh_request_id()))
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
        if memory.is_over or memory.progress is None:
            return timeouts.AUDIT_RETRY, "the audit"
        progress = memory.progress
        return rest_of(progress, workflow.now()), progress.waits_for

    def _has_ended(self) -> bool:
        memory = self._memory
        return memory.is_over and self._inbox.is_idle and not memory.messages.unaudited
