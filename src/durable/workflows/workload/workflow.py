"""Desired state: what somebody applied, divided over regions, driven to serving, and let go.

The workload owns the slots and the placements' shares; placements own everything that happens to a
slot in a region. What regions report is the authority's word, not the placements' memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import (
        AdmitStep,
        Admitted,
        DeleteStep,
        Divided,
        DivideStep,
        Finish,
        FirstDivision,
        Opening,
        Recalled,
        ReleasePlacement,
        Share,
        WorkloadKey,
    )
    from durable.activities.workload import REFUSED, WorkloadActivities
    from durable.model.ids import RegionId
    from durable.model.refusal import RefusalCode
    from durable.model.workload import WorkloadKind, WorkloadManifest
    from durable.signals import messages, sentences
    from durable.signals.messages import Apply, Delete, Ended, Message, Resize, Scale, ShareReport
    from durable.signals.names import WORKLOAD
    from durable.signals.status import WorkloadStatus
    from durable.workflows import timeouts
    from durable.workflows.details import workload_details
    from durable.workflows.failures import STEP_FAILURES, cause_of, refusal, said_by
    from durable.workflows.inbox import Inbox, Letter, described
    from durable.workflows.stepping import audit_people, run_step
    from durable.workflows.workload.state import OpenPlacement, WorkloadStart, WorkloadState

T = TypeVar("T")

KINDS: dict[str, type[Message]] = {
    "report": messages.ShareReport,
    "ended": messages.Ended,
    "scale": messages.Scale,
    "delete": messages.Delete,
}


@workflow.defn(name=WORKLOAD)
class Workload:
    @workflow.init
    def __init__(self, start: WorkloadStart) -> None:
        self._tenant, self._workload = start.tenant, start.workload
        self._state = start.state or WorkloadState()
        self._inbox = Inbox(KINDS, self._state.messages)
        self._turn = asyncio.Lock()
        self._due = False
        self._was_refused = False
        self._looks_by_itself = False

    @workflow.run
    async def run(self, start: WorkloadStart) -> WorkloadStatus | None:
        if not await self._was_admitted():
            return None
        while True:
            await self._read_messages()
            await audit_people(self._state.messages, WorkloadActivities.audit_globally)
            await self._release_old()
            await self._divide()
            self._tell()
            if await self._has_ended():
                return self._status()
            if self._must_continue():
                workflow.continue_as_new(WorkloadStart(self._tenant, self._workload, self._state))
            await self._rest()

    async def _was_admitted(self) -> bool:
        """Whether there is anything to do: a workload whose first apply was refused ends here."""
        deadline = workflow.now() + timeouts.FIRST_APPLY
        while self._state.generation == 0 and workflow.now() < deadline:
            try:
                await workflow.wait_condition(
                    self._knows_what_to_do, timeout=deadline - workflow.now()
                )
            except TimeoutError:
                break
            await self._read_messages()
            if self._was_refused and workflow.all_handlers_finished():
                break
        if self._state.generation == 0:
            await workflow.wait_condition(workflow.all_handlers_finished)
        return self._state.generation > 0

    def _knows_what_to_do(self) -> bool:
        # What placements say while it is being admitted is of a generation that is not known yet.
        heard = bool(self._inbox) and not self._turn.locked()
        refused = self._was_refused and workflow.all_handlers_finished()
        return self._state.generation > 0 or heard or refused

    # ── what is wanted ──────────────────────────────────────────────────────────────────────────

    @workflow.update(
        name="apply",
        description="Set the desired state; the answer says which generation it is. "
        "Send it with `durable apply -f FILE` or the SDK.",
    )
    async def apply(self, message: Apply) -> Admitted:
        return await self._admit(message)

    @apply.validator
    def _may_apply(self, message: Apply) -> None:
        of = (message.manifest.tenant, message.manifest.name)
        if of != (self._tenant, self._workload):
            said = f"The manifest is of {of[0]}/{of[1]}; this is {self._tenant}/{self._workload}."
            raise refusal(RefusalCode.INVALID, said)
        self._refuse_while_deleting()

    @workflow.update(name="scale", description=described(Scale, sentences.SCALE))
    async def scale(self, message: Scale) -> Admitted:
        return await self._admit(message)

    @scale.validator
    def _may_scale(self, message: Scale) -> None:
        self._refuse_while_deleting()
        if self._state.spec is None:
            said = "Nothing was applied yet; apply a manifest first."
            raise refusal(RefusalCode.NOT_APPLIED, said)
        if self._state.spec.kind is WorkloadKind.JOB:
            raise refusal(
                RefusalCode.JOB_NOT_SCALED,
                "A job is one piece of work and is not scaled; apply it with another number of "
                "replicas to run it anew.",
            )

    @workflow.update(name="delete", description=described(Delete, sentences.DELETE))
    async def delete(self, message: Delete) -> str:
        await self._delete(message)
        return "Deleting: every placement is asked to stop, and its slots are given up."

    def _refuse_while_deleting(self) -> None:
        if self._state.deleting is not None or self._state.done:
            raise refusal(
                RefusalCode.BEING_DELETED,
                f"{self._tenant}/{self._workload} is ending ({self._state.deleting or 'done'}); "
                "wait until it has ended, then apply it again.",
            )

    def _manifest(self) -> WorkloadManifest:
        assert self._state.spec is not None
        return WorkloadManifest(tenant=self._tenant, name=self._workload, spec=self._state.spec)

    async def _admit(self, asked: Apply | Scale) -> Admitted:
        # One at a time: the next one begins with what this one leaves.
        async with self._turn:
            scales = isinstance(asked, Scale)
            is_first = self._state.generation == 0
            revision = self._next_revision()
            step = AdmitStep(
                manifest=self._manifest() if scales else asked.manifest,
                request=asked.request_id,
                actor=asked.actor,
                replicas=asked.replicas if scales else None,
                first=self._first_division(revision) if is_first else None,
            )
            try:
                admitted = await self._final(
                    WorkloadActivities.admit, step, f"admit, asked by {asked.actor}"
                )
            except ApplicationError:
                if is_first:
                    await self._go_on_deleting()
                self._was_refused = True
                raise
            if is_first and admitted.existed:
                await self._recall()
            if admitted.divided is not None:
                self._want(admitted, revision)
                self._take_division(admitted.divided, self._untold(), revision)
            elif not (admitted.deleting or admitted.deleted):
                self._want(admitted)
            return admitted

    async def _go_on_deleting(self) -> None:
        """A delete that nobody finished, because its workflow was terminated, is taken up."""
        recalled = await self._recall()
        if recalled is not None and recalled.deleting:
            self._let_go("a delete that was begun is finished")

    async def _recall(self) -> Recalled | None:
        """Learns from the authority what a run before this one left behind."""
        key = WorkloadKey(tenant=self._tenant, workload=self._workload)
        recalled = await self._final(WorkloadActivities.recall, key, "recall what there is")
        if recalled is None or recalled.deleted:
            return recalled
        state = self._state
        state.generation, state.spec = recalled.generation, recalled.spec
        state.share = dict(recalled.share)
        self._revise()
        for report in recalled.reports:
            state.placements.append(OpenPlacement(report.generation, report.region))
            self._hear(report)
        return recalled

    def _want(self, admitted: Admitted, revision: int | None = None) -> None:
        state = self._state
        if (admitted.generation, admitted.spec, dict(admitted.share)) == (
            state.generation,
            state.spec,
            state.share,
        ):
            return
        state.generation, state.spec = admitted.generation, admitted.spec
        state.share = dict(admitted.share)
        self._revise(revision)

    def _next_revision(self) -> int:
        """Shares are numbered by the clock, so that a run that was begun anew goes on."""
        return max(self._state.revision + 1, int(workflow.now().timestamp() * 1000))

    def _revise(self, revision: int | None = None) -> None:
        """Another share than the regions were told."""
        self._state.revision = self._next_revision() if revision is None else revision
        self._due = True

    def _first_division(self, revision: int) -> FirstDivision:
        return FirstDivision(
            revision=revision,
            transfer=self._transfer(revision),
            task_timeout=timeouts.WORKFLOW_TASK,
        )

    def _transfer(self, revision: int) -> str:
        return f"{workflow.info().workflow_id}/r{revision}"

    async def _delete(self, message: Delete) -> None:
        async with self._turn:
            if self._state.deleting is not None:
                return
            is_first = self._state.generation == 0
            await self._final(
                WorkloadActivities.request_delete,
                DeleteStep(
                    tenant=self._tenant,
                    workload=self._workload,
                    request=message.request_id,
                    actor=message.actor,
                    reason=message.reason,
                ),
                f"delete, asked by {message.actor}",
            )
            if is_first:
                await self._recall()
            self._let_go(f"{message.actor}: {message.reason}")

    def _let_go(self, reason: str) -> None:
        self._state.deleting, self._state.share = reason[:500], {}
        self._revise()

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    async def _read_messages(self) -> None:
        self._due = False
        while (letter := self._inbox.next()) is not None:
            try:
                await self._read(letter)
            except ApplicationError as error:
                self._inbox.forget(letter)
                self._inbox.reject(
                    letter.name, letter.message.model_dump(mode="json"), error.message
                )

    async def _read(self, letter: Letter) -> None:
        match letter.message:
            case ShareReport() as report:
                self._hear(report)
            case Ended() as ended:
                for placement in self._state.placements:
                    if (placement.generation, placement.region) == (ended.generation, ended.region):
                        placement.ended = ended
            case Scale() as scale:
                self._may_scale(scale)
                await self._admit(scale)
            case Delete() as delete:
                await self._delete(delete)
            case _:
                raise AssertionError(f"a kind of message without a reader: {letter.name}")

    def _hear(self, report: ShareReport) -> None:
        """Keeps the newest word of each region; one that comes late changes nothing."""
        known = self._state.reports.get(report.region)
        newer = known is None or (report.generation, report.version, report.at) >= (
            known.generation,
            known.version,
            known.at,
        )
        if newer and report.generation == self._state.generation:
            self._state.reports[report.region] = report

    # ── what is made of it ──────────────────────────────────────────────────────────────────────

    async def _release_old(self) -> None:
        """Asks placements of older generations, or all of them at the end, to let go.

        Again at every look of its own, because one that was terminated has heard nothing.
        """
        state = self._state
        for placement in state.to_release:
            if placement.asked_to_end == state.revision and not self._looks_by_itself:
                continue
            placement.asked_to_end = state.revision
            step = ReleasePlacement(
                share=self._share(placement.generation, placement.region),
                wanted=self._wanted(()),
                reason=state.deleting or f"generation {state.generation} takes over",
                request=f"g{state.generation}-r{state.revision}",
                task_timeout=timeouts.WORKFLOW_TASK,
            )
            found = await self._try(WorkloadActivities.release, step, f"release {placement.region}")
            if found is False:
                placement.ended = Ended(region=placement.region, generation=placement.generation)
        self._looks_by_itself = False
        state.placements = [
            placement
            for placement in state.placements
            if placement.ended is None or placement.generation == state.generation
        ]

    def _wanted(self, slots: tuple[int, ...]) -> Resize:
        assert self._state.spec is not None
        return Resize(slots=slots, spec=self._state.spec, revision=self._state.revision)

    async def _divide(self) -> None:
        """Gives every region the slots it shall have, as far as old claims allow, and tells it."""
        state, revision = self._state, self._state.revision
        untold = self._untold()
        if state.is_settled and not untold:
            return
        step = DivideStep(
            tenant=self._tenant,
            workload=self._workload,
            share=None if state.is_settled else state.share,
            transfer=self._transfer(revision),
            openings=tuple(
                Opening(
                    share=self._share(state.generation, placement.region),
                    wanted=self._wanted(state.share.get(placement.region, ())),
                    is_first=placement.revision == 0,
                )
                for placement in untold
            ),
            task_timeout=timeouts.WORKFLOW_TASK,
        )
        divided = await self._try(WorkloadActivities.divide, step, "give regions their slots")
        if divided is not _UNREACHABLE:
            self._take_division(divided, untold, revision, settled=step.share is not None)

    def _take_division(
        self,
        divided: Divided,
        told: Sequence[OpenPlacement],
        revision: int,
        *,
        settled: bool = True,
    ) -> None:
        """Regions were told of this revision, which need not be the newest any more."""
        state = self._state
        for placement in told:
            placement.revision = revision
            if placement.region in divided.ended and placement.ended is None:
                placement.ended = Ended(region=placement.region, generation=placement.generation)
        if divided.unreachable is not None:
            self._could_not("give regions their slots", divided.unreachable)
        elif settled:
            state.waits = list(divided.waits[:20])
            state.tries = state.tries + 1 if divided.waits else 0
            state.settled_revision = revision

    def _untold(self) -> list[OpenPlacement]:
        """The placements of this generation that have not heard of their present share."""
        state = self._state
        if state.deleting is not None or state.done or state.spec is None:
            return []
        present = {placement.region for placement in state.present}
        state.placements += [
            OpenPlacement(state.generation, region)
            for region in state.share
            if region not in present
        ]
        return [
            placement
            for placement in state.present
            if placement.revision != state.revision and placement.ended is None
        ]

    async def _has_ended(self) -> bool:
        """Whether everything is released: deleted, or a job that is done."""
        state = self._state
        if state.deleting is None and not state.done and not state.job_is_done:
            return False
        if self._inbox or self._due or not workflow.all_handlers_finished():
            return False
        if state.deleting is None and not state.done:
            state.done, state.share = True, {}
            self._revise()
            return False
        if not state.is_settled or any(placement.ended is None for placement in state.placements):
            return False
        step = Finish(
            tenant=self._tenant,
            workload=self._workload,
            generation=state.generation,
            deleted=state.deleting is not None,
            conditions=self._status().conditions,
            replicas_by_state={"completed": self._status().completed},
        )
        return await self._try(WorkloadActivities.finish, step, "finish") is not _UNREACHABLE

    # ── telling ─────────────────────────────────────────────────────────────────────────────────

    def _tell(self) -> None:
        # No search attribute: a report must cause no command, or its order beside an update that
        # comes with it may not be the same on replay. Placements are searched by phase instead.
        status = self._status()
        self._state.conditions = list(status.conditions)
        workflow.set_current_details(workload_details(status))

    @workflow.query(name="status", description="Counts, conditions and what it waits for.")
    def status(self) -> WorkloadStatus | None:
        return None if self._state.spec is None else self._status()

    def _status(self) -> WorkloadStatus:
        return self._state.status(self._tenant, self._workload, workflow.now())

    # ── steps, resting, continuing ──────────────────────────────────────────────────────────────

    async def _final(
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
                f"The authority could not be asked: {said_by(error)}",
                type="unreachable",
                non_retryable=True,
            ) from error

    async def _try(
        self, activity: Callable[[Any, Any], Awaitable[T]], argument: object, summary: str
    ) -> T:
        """A step that is taken again later when it cannot be taken now."""
        try:
            return await run_step(activity, argument, summary)
        except STEP_FAILURES as error:
            self._could_not(summary, said_by(error))
            return _UNREACHABLE

    def _could_not(self, what: str, why: str) -> None:
        self._state.waits = [f"To {what} was not possible: {why}"[:500]]
        self._state.tries += 1

    async def _rest(self) -> None:
        wait, reason = self._next_look()
        if wait is None:
            await workflow.wait_condition(self._is_stirred)
            return
        try:
            await workflow.wait_condition(
                self._is_stirred, timeout=wait, timeout_summary=f"waits: {reason}"[:200]
            )
        except TimeoutError:
            self._looks_by_itself = True

    def _is_stirred(self) -> bool:
        return bool(self._inbox) or self._due

    def _next_look(self) -> tuple[timedelta | None, str]:
        """When to look again by itself, and what for."""
        state = self._state
        if state.waits or state.to_release or not state.is_open:
            wait = min(timeouts.SETTLE_LONGEST, timeouts.SETTLE_FIRST * 2 ** min(state.tries, 6))
            return wait, (state.waits or ["placements to end"])[0]
        if state.messages.unaudited:
            return timeouts.AUDIT_AGAIN, "the audit"
        return None, ""

    def _must_continue(self) -> bool:
        full = (
            workflow.info().is_continue_as_new_suggested()
            or self._inbox.in_this_run >= timeouts.MESSAGES_PER_RUN
        )
        return full and not self._inbox and not self._due and workflow.all_handlers_finished()

    def _share(self, generation: int, region: RegionId) -> Share:
        return Share(
            region=region, tenant=self._tenant, workload=self._workload, generation=generation
        )

    @workflow.signal(dynamic=True, description="scale and delete as signals; none is dropped.")
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        self._inbox.signal(name, args)


_UNREACHABLE: Any = object()
