"""What a workload does with messages: apply, scale and delete, and what its regions report.

They are read one by one, between two steps, and a person is answered with what the authority
recorded.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.failures import REFUSED
    from durable.activities.steps import (
        WorkloadKey,
        WorkloadRequest,
    )
    from durable.activities.workload import WorkloadActivities
    from durable.model.ids import TenantId, WorkloadName
    from durable.model.refusal import RefusalCode
    from durable.model.work.workload import AdmittedWorkload
    from durable.signals.names import ENDING
    from durable.signals.payloads import (
        ApplyWorkload,
        DeleteWorkload,
        Look,
        PauseRollout,
        PromoteRollout,
        ReplaceSlots,
        ResumeRollout,
        RollBack,
        ScaleWorkload,
    )
    from durable.validation.text import shorten
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, cause_of, refusal, sentence_of
    from durable.workflows.handlers import Receives
    from durable.workflows.inbox import Envelope, Inbox
    from durable.workflows.steps import run_step
    from durable.workflows.workload.state import WorkloadState

T = TypeVar("T")

UNREACHABLE = "unreachable"
# Placements of older generations that have not ended yet; with more, no further one is begun.
MAX_PLACEMENTS = 300
# A workload has few regions; a message that names more of them is not believed.
UNREAD_KEPT = 100


class WorkloadAdmission(Receives):
    """One method for each message in the registry."""

    _tenant: TenantId
    _workload: WorkloadName
    _state: WorkloadState
    _inbox: Inbox
    # Something changed that the loop has to act on before it rests.
    _is_due: bool
    # The authority did not answer the last request: the next one is not kept waiting for it.
    _is_cut_off: bool
    # What this run was started for has been answered, and left it nothing to look after.
    _has_nothing_to_do: bool
    # What it remembers may not be what the authority knows.
    _must_recall: bool

    # ── from people ─────────────────────────────────────────────────────────────────────────────

    async def on_apply(self, envelope: Envelope[ApplyWorkload]) -> AdmittedWorkload:
        apply = envelope.payload
        named = (apply.manifest.tenant, apply.manifest.name)
        if named != (self._tenant, self._workload):
            sentence = (
                f"The manifest is of {named[0]}/{named[1]}; this is "
                f"{self._tenant}/{self._workload}."
            )
            raise refusal(RefusalCode.INVALID, sentence)
        return await self._admit(envelope)

    async def on_scale(self, envelope: Envelope[ScaleWorkload]) -> AdmittedWorkload:
        return await self._admit(envelope)

    async def on_delete(self, envelope: Envelope[DeleteWorkload]) -> str:
        delete, step = envelope.payload, self._as_request(envelope)
        summary = f"delete, requested by {delete.actor}"
        deletion = await self._request(WorkloadActivities.delete, step, summary)
        if self._is_new:
            await self._recall()
        # Whether it is being deleted is the authority's to say: this may be a request that was
        # answered in an earlier life of the workload.
        if deletion.deleting:
            self._delete(f"{delete.actor}: {delete.reason}")
        self._has_nothing_to_do = self._is_new
        return deletion.answer

    async def on_pause(self, envelope: Envelope[PauseRollout]) -> str:
        return await self._have_recorded(WorkloadActivities.change_rollout, envelope)

    async def on_resume(self, envelope: Envelope[ResumeRollout]) -> str:
        return await self._have_recorded(WorkloadActivities.change_rollout, envelope)

    async def on_promote(self, envelope: Envelope[PromoteRollout]) -> str:
        return await self._have_recorded(WorkloadActivities.change_rollout, envelope)

    async def on_rollback(self, envelope: Envelope[RollBack]) -> str:
        return await self._have_recorded(WorkloadActivities.change_rollout, envelope)

    async def on_replace(self, envelope: Envelope[ReplaceSlots]) -> str:
        return await self._have_recorded(WorkloadActivities.replace, envelope)

    async def _have_recorded(
        self,
        activity: Callable[[Any, WorkloadRequest], Awaitable[str]],
        envelope: Envelope[Any],
    ) -> str:
        """Has the authority record it; the next division goes by what is recorded."""
        step = self._as_request(envelope)
        summary = f"{envelope.message.name}, requested by {step.actor}"
        answer = await self._request(activity, step, summary)
        await self._look_again()
        return answer

    def _as_request(self, envelope: Envelope[Any]) -> WorkloadRequest:
        message = envelope.request_message
        assert message is not None, "a person's message"
        return WorkloadRequest(tenant=self._tenant, workload=self._workload, message=message)

    async def _look_again(self) -> None:
        """After a request that the authority has recorded, whether or not this run is new."""
        if self._is_new:
            await self._recall()
        self._has_nothing_to_do = self._is_new
        self._state.first_revision = None
        # A sender who waits for what was requested must not take what was there before for it.
        self._state.divided_generation = 0
        self._divide_again()

    async def _admit(self, envelope: Envelope[Any]) -> AdmittedWorkload:
        """Has the authority admit a manifest, or the present one with another replica count."""
        step = self._as_request(envelope)
        if self._state.is_finished or (self._state.is_ending and not self._state.deleting):
            # Of a job that is done, what it held is being given back, and the next run takes this.
            name = f"{self._tenant}/{self._workload}"
            raise ApplicationError(
                f"{name} has just ended; send the same request again.", type=ENDING
            )
        if self._state.is_ending:
            return await self._answer_before(
                step,
                RefusalCode.BEING_DELETED,
                f"{self._tenant}/{self._workload} is ending ({self._state.deleting}); wait until "
                "it has ended, then apply it again.",
            )
        if len(self._state.open) >= MAX_PLACEMENTS:
            return await self._answer_before(
                step,
                RefusalCode.WRONG_STATE,
                f"{len(self._state.open)} placements of older generations have not "
                "ended yet; wait for them, or see `durable get placements`.",
            )
        summary = f"admit, requested by {step.actor}"
        admission = await self._request(WorkloadActivities.admit, step, summary)
        is_first = self._is_new and admission.is_new
        if self._is_new and not admission.is_new:
            await self._recall()
        current = admission.current
        if not (current.deleting or current.deleted):
            self._want(current, current.revision if is_first else None)
        self._has_nothing_to_do = self._is_new
        return admission.answer

    async def _answer_before(
        self, step: WorkloadRequest, code: RefusalCode, why: str
    ) -> AdmittedWorkload:
        """What was answered before is answered the same; nothing new is admitted now."""
        answered = await self._answered(
            WorkloadActivities.recall_admission,
            step,
            f"recall the answer to {step.message.request_id}",
        )
        if answered is None:
            raise refusal(code, why)
        return answered.answer

    @property
    def _is_new(self) -> bool:
        """Whether this run knows of no workload yet."""
        return self._state.generation == 0

    async def _request(
        self, activity: Callable[[Any, Any], Awaitable[T]], argument: object, summary: str
    ) -> T:
        """What the authority answers a person's request.

        If it refuses the first one that a run knows of, the run goes on with what exists, such as
        a deletion to finish, or ends.
        """
        try:
            return await self._answered(activity, argument, summary)
        except ApplicationError as error:
            if error.type == UNREACHABLE:
                # It may have been recorded all the same: only the authority knows.
                self._must_recall = True
                raise
            self._has_nothing_to_do = True
            if self._is_new:
                await self._recall()
            raise

    def _want(self, admitted: AdmittedWorkload, first_revision: int | None = None) -> None:
        """Takes over what was admitted, if it differs from what is wanted now."""
        state = self._state
        wanted = (admitted.generation, admitted.spec, dict(admitted.share))
        if admitted.generation != state.generation:
            state.parts, state.stuck_since, state.gave_up_parts = {}, {}, []
        state.admitted_at = admitted.admitted_at
        state.deadline_missed_at = admitted.deadline_missed_at
        if wanted != (state.generation, state.spec, state.share):
            state.generation, state.spec, state.share = wanted
            state.first_revision = first_revision
            self._divide_again()

    def _delete(self, why: str) -> None:
        if self._state.deleting is None:
            self._state.deleting, self._state.share = shorten(why), {}
            self._divide_again()

    def _divide_again(self) -> None:
        """The shares may differ from what is wanted."""
        self._state.must_divide = self._is_due = True

    # ── what a run before this one left ─────────────────────────────────────────────────────────

    async def _recall(self) -> AdmittedWorkload | None:
        """Reads from the authority what a run before this one left."""
        key = WorkloadKey(tenant=self._tenant, workload=self._workload)
        recalled = await self._answered(WorkloadActivities.recall, key, "recall what exists")
        if recalled is None or recalled.deleted:
            return recalled
        state = self._state
        is_of_this_life = recalled.generation <= state.generation
        if state.deleting is not None and not recalled.deleting:
            # This run was reset out of an earlier life: the workload was created again since.
            state.deleting, state.done, state.is_finished = None, False, False
            state.given_up = None
        if not (state.is_ending and is_of_this_life):
            state.done = state.is_finished = False
            state.given_up = None
            self._want(recalled)
            state.stable = recalled.stable_generation
        # What regions hold is read when it is divided again.
        state.first_revision = None
        self._divide_again()
        if recalled.deleting:
            self._delete("an unfinished deletion is resumed")
        return recalled

    # ── from controllers ────────────────────────────────────────────────────────────────────────

    async def on_look(self, envelope: Envelope[Look]) -> str:
        """A hint: what changed is read from the authority, one share of it or everything."""
        look = envelope.payload
        if look.generation is None or look.region is None:
            self._must_recall = True
            return "Looking."
        share = (look.generation, look.region)
        if self._state.has_seen(share, look.seen_until):
            return "That is known."
        if len(self._state.unread) < UNREAD_KEPT:
            self._state.must_read(share)
        return "Looking."

    async def _answered(
        self, activity: Callable[[Any, Any], Awaitable[T]], argument: object, summary: str
    ) -> T:
        """A step whose refusal is the caller's answer."""
        retry = timeouts.STEP_RETRY if self._is_cut_off else timeouts.ADMIT_RETRY
        self._is_cut_off = False
        try:
            return await run_step(activity, argument, summary, retry)
        except STEP_FAILURES as error:
            cause = cause_of(error)
            if isinstance(cause, ApplicationError) and cause.type == REFUSED:
                raise ApplicationError(
                    cause.message, *cause.details, type=REFUSED, non_retryable=True
                ) from error
            self._is_cut_off = True
            raise ApplicationError(
                f"The authority did not answer: {sentence_of(error)}",
                type=UNREACHABLE,
                non_retryable=True,
            ) from error
