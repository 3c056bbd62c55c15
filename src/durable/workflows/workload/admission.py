"""What a workload does with messages: apply, scale and delete, and what its regions report.

An update of a person is acted on in its own handler, one at a time, and answered with what the
authority recorded. What comes as a signal waits in the inbox and is read between two steps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.workload import REFUSED, WorkloadActivities
    from durable.activities.workload_steps import (
        AdmitStep,
        Admitted,
        DeleteStep,
        Recalled,
        WorkloadKey,
    )
    from durable.model.ids import TenantId, WorkloadName
    from durable.model.refusal import RefusalCode
    from durable.model.workload import WorkloadKind, WorkloadManifest
    from durable.signals.payloads import (
        ApplyWorkload,
        DeleteWorkload,
        PlacementEnded,
        ScaleWorkload,
        ShareReport,
    )
    from durable.signals.registry import Message
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, cause_of, refusal, sentence_of
    from durable.workflows.inbox import Inbox
    from durable.workflows.steps import run_step
    from durable.workflows.workload.state import OpenPlacement, WorkloadState

T = TypeVar("T")


class WorkloadAdmission:
    """One method for each message in the registry."""

    _tenant: TenantId
    _workload: WorkloadName
    _state: WorkloadState
    _inbox: Inbox
    # Held while something is admitted: the next request begins with what this one leaves.
    _admitting: asyncio.Lock
    # Something changed that the loop has to act on.
    _is_due: bool
    _was_refused: bool

    @workflow.signal(dynamic=True, description="The same messages as signals; none is dropped.")
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        self._inbox.receive_signal(name, args)

    @workflow.update(dynamic=True, description="Any other name is refused, and recorded.")
    async def on_unknown_update(self, name: str, args: Sequence[RawValue]) -> None:
        raise self._inbox.refuse_unknown(name, args)

    async def receive(self, message: Message, raw: RawValue) -> Any:
        """A request id is counted by the authority, which remembers what it answered."""
        envelope = self._inbox.open(message, raw)
        handle: Any = getattr(self, f"on_{message.name}")
        try:
            answer = await handle(envelope.payload)
            self._inbox.accept(envelope, str(answer))
            return answer
        except ApplicationError as refused:
            self._inbox.refuse(envelope, refused)
            raise

    async def _read_messages(self) -> None:
        self._is_due = False
        while (envelope := self._inbox.next()) is not None:
            handle: Any = getattr(self, f"on_{envelope.message.name}")
            try:
                answer = await handle(envelope.payload)
                self._inbox.accept(envelope, str(answer))
            except ApplicationError as refused:
                self._inbox.refuse(envelope, refused)

    # ── from people ─────────────────────────────────────────────────────────────────────────────

    async def on_apply(self, apply: ApplyWorkload) -> Admitted:
        named = (apply.manifest.tenant, apply.manifest.name)
        if named != (self._tenant, self._workload):
            sentence = (
                f"The manifest is of {named[0]}/{named[1]}; this is "
                f"{self._tenant}/{self._workload}."
            )
            raise refusal(RefusalCode.INVALID, sentence)
        self._refuse_while_ending()
        return await self._admit(apply, apply.manifest)

    async def on_scale(self, scale: ScaleWorkload) -> Admitted:
        self._refuse_while_ending()
        spec = self._state.spec
        if spec is None:
            sentence = "Nothing was applied yet; apply a manifest first."
            raise refusal(RefusalCode.NOT_APPLIED, sentence)
        if spec.kind is WorkloadKind.JOB:
            raise refusal(
                RefusalCode.JOB_NOT_SCALED,
                "A job is one piece of work and is not scaled; apply it with another replica "
                "count to run it anew.",
            )
        return await self._admit(scale, None)

    async def on_delete(self, delete: DeleteWorkload) -> str:
        async with self._admitting:
            if self._state.deleting is not None:
                return "It is being deleted already."
            step = DeleteStep(
                tenant=self._tenant,
                workload=self._workload,
                request=delete.request_id,
                actor=delete.actor,
                reason=delete.reason,
            )
            summary = f"delete, requested by {delete.actor}"
            await self._answered(WorkloadActivities.delete, step, summary)
            if self._state.generation == 0:
                await self._recall()
            self._delete(f"{delete.actor}: {delete.reason}")
        return "Deleting: every placement is asked to stop and release its slots."

    def _refuse_while_ending(self) -> None:
        if self._state.is_ending:
            raise refusal(
                RefusalCode.BEING_DELETED,
                f"{self._tenant}/{self._workload} is ending ({self._state.deleting or 'done'}); "
                "wait until it has ended, then apply it again.",
            )

    async def _admit(
        self, request: ApplyWorkload | ScaleWorkload, manifest: WorkloadManifest | None
    ) -> Admitted:
        """Has the authority admit a manifest, or the present one with another replica count."""
        async with self._admitting:
            is_first = self._state.generation == 0
            step = AdmitStep(
                manifest=manifest or self._manifest(),
                request=request.request_id,
                actor=request.actor,
                replicas=request.replicas if isinstance(request, ScaleWorkload) else None,
            )
            try:
                summary = f"admit, requested by {request.actor}"
                admitted = await self._answered(WorkloadActivities.admit, step, summary)
            except ApplicationError:
                if is_first:
                    await self._resume_deletion()
                self._was_refused = True
                raise
            if is_first and admitted.existed:
                await self._recall()
            if not (admitted.deleting or admitted.deleted):
                self._want(admitted)
            return admitted

    def _manifest(self) -> WorkloadManifest:
        assert self._state.spec is not None
        return WorkloadManifest(tenant=self._tenant, name=self._workload, spec=self._state.spec)

    def _want(self, admitted: Admitted) -> None:
        """Takes over what was admitted, if it differs from what is wanted now."""
        state = self._state
        wanted = (admitted.generation, admitted.spec, dict(admitted.share))
        if wanted != (state.generation, state.spec, state.share):
            state.generation, state.spec, state.share = wanted
            self._revise()

    def _delete(self, why: str) -> None:
        if self._state.deleting is None:
            self._state.deleting, self._state.share = why[:500], {}
            self._revise()

    def _revise(self) -> None:
        """The shares differ from what regions were sent.

        They are numbered by the clock, so that a run that was begun anew goes on counting.
        """
        clock = int(workflow.now().timestamp() * 1000)
        self._state.revision = max(self._state.revision + 1, clock)
        self._is_due = True

    # ── what a run before this one left ─────────────────────────────────────────────────────────

    async def _resume_deletion(self) -> None:
        """Finishes a deletion whose workflow was terminated."""
        recalled = await self._recall()
        if recalled is not None and recalled.deleting:
            self._delete("an unfinished deletion is resumed")

    async def _recall(self) -> Recalled | None:
        """Reads from the authority what a run before this one left."""
        key = WorkloadKey(tenant=self._tenant, workload=self._workload)
        recalled = await self._answered(WorkloadActivities.recall, key, "recall what exists")
        if recalled is None or recalled.deleted:
            return recalled
        state = self._state
        state.generation, state.spec = recalled.generation, recalled.spec
        state.share = dict(recalled.share)
        self._revise()
        for report in recalled.reports:
            state.placements.append(OpenPlacement(report.generation, report.region))
            await self.on_report(report)
        return recalled

    # ── from controllers ────────────────────────────────────────────────────────────────────────

    async def on_report(self, report: ShareReport) -> str:
        """Keeps the newest report of each region; one that comes late changes nothing."""
        known = self._state.reports.get(report.region)
        is_newer = known is None or (report.generation, report.version, report.at) >= (
            known.generation,
            known.version,
            known.at,
        )
        if is_newer and report.generation == self._state.generation:
            self._state.reports[report.region] = report
        return "Reported."

    async def on_ended(self, ended: PlacementEnded) -> str:
        for placement in self._state.placements:
            if (placement.generation, placement.region) == (ended.generation, ended.region):
                placement.ended = ended
        return "Noted."

    async def _answered(
        self, activity: Callable[[Any, Any], Awaitable[T]], argument: object, summary: str
    ) -> T:
        """A step whose refusal is the caller's answer."""
        try:
            return await run_step(activity, argument, summary, timeouts.ADMIT_RETRY)
        except STEP_FAILURES as error:
            cause = cause_of(error)
            if isinstance(cause, ApplicationError) and cause.type == REFUSED:
                raise ApplicationError(
                    cause.message, *cause.details, type=REFUSED, non_retryable=True
                ) from error
            raise ApplicationError(
                f"The authority did not answer: {sentence_of(error)}",
                type="unreachable",
                non_retryable=True,
            ) from error
