"""Brings one policy revision into force, region by region, or rolls it back.

Where the revision is, which order it follows and how long a region was watched are rows of the
authority; every step is decided from those rows.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from durable.activities.policy import PolicyActivities
    from durable.model.ids import PolicyRevision
    from durable.model.policy.rollout import PolicyPhase, PolicyProgress
    from durable.model.refusal import RefusalCode
    from durable.signals.names import POLICY, policy_id, revision_of
    from durable.signals.policies import PolicyStatus, StartPolicy
    from durable.signals.registry import messages_to
    from durable.validation.text import shorten
    from durable.workflows import timeouts
    from durable.workflows.failures import sentence_of
    from durable.workflows.handlers import accepts
    from durable.workflows.inbox import Envelope
    from durable.workflows.orders import Memory, OrderWorkflow
    from durable.workflows.policy.rest import rest_of
    from durable.workflows.starts import read_start
    from durable.workflows.steps import UNREACHABLE


@dataclass
class PolicyMemory(Memory):
    progress: PolicyProgress | None = None


@workflow.defn(name=POLICY)
@accepts(messages_to(POLICY))
class PolicyWorkflow(OrderWorkflow[PolicyRevision, PolicyMemory]):
    memory = PolicyMemory
    unknown = RefusalCode.UNKNOWN_POLICY

    def key_of(self, id: str) -> PolicyRevision:
        return revision_of(id)

    def check_start(self, raw: RawValue) -> None:
        read_start(
            raw, StartPolicy, lambda start: policy_id(start.revision), '{"revision": NUMBER}'
        )

    async def recall(self) -> bool:
        await self._go_on()
        # Before anything is read: a promotion at once finds it compared.
        await self._shadow()
        return True

    @property
    def has_ended(self) -> bool:
        progress = self._memory.progress
        return progress is not None and progress.rollout.is_settled

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @workflow.query(name="status", description="Where the revision is, and what it waits for.")
    def status(self) -> PolicyStatus:
        memory = self._memory
        return PolicyStatus(revision=self._key, progress=memory.progress, **memory.shown())

    async def _order(self, envelope: Envelope[Any]) -> str:
        """Has the authority take the order: rights, numbers and what is allowed are its rows'."""
        summary = f"take the {envelope.message.name}"
        taken = await self.ask(PolicyActivities.order_policy, envelope.request_message, summary)
        memory = self._memory
        if memory.progress is not None:
            # A sender who was answered must not be shown what was before.
            memory.progress = memory.progress.model_copy(update={"rollout": taken.target})
        return taken.sentence

    on_promote = on_pause = on_rollback = _order

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def advance(self) -> None:
        problem = await self._shadow()
        await self._go_on()
        self._memory.unreachable = self._memory.unreachable or problem

    async def _shadow(self) -> str:
        """Compares it with each region's recent decisions before it is promoted; or why not."""
        progress = self._memory.progress
        if progress is None or progress.rollout.phase is not PolicyPhase.SHADOW:
            return ""
        if not set(progress.regions).difference(one.region for one in progress.shadows):
            return ""
        try:
            await workflow.execute_activity_method(
                PolicyActivities.shadow_policy,
                self._key,
                start_to_close_timeout=timeouts.SHADOW,
                retry_policy=timeouts.STEP_RETRY,
                summary="decide recent decisions again",
            )
        except FailureError as error:
            return shorten(f"Could not compare: {sentence_of(error)}")
        return ""

    async def _go_on(self) -> None:
        """Takes the steps that can be taken now, and learns what comes next."""
        advance = PolicyActivities.advance_policy
        progress = await self.step(advance, self._key, "take the next step")
        if progress is not UNREACHABLE:
            self._memory.progress = progress

    # ── reporting, resting ──────────────────────────────────────────────────────────────────────

    def rest(self) -> tuple[timedelta, str]:
        progress = self._memory.progress
        if progress is None:
            return timeouts.POLICY_LOOK, "the authority"
        return rest_of(progress), progress.waits_for
