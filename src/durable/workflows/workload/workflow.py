"""Desired state: what somebody applied, divided over regions, driven to serving, and released.

The workload owns the slots and the placements' shares; placements own everything that happens to a
slot in a region. What regions report comes from the authority, not from the placements' memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import PlacementKey
    from durable.activities.workload import WorkloadActivities
    from durable.activities.workload_steps import (
        DeadlineStep,
        Divided,
        DivideStep,
        FinishStep,
        ObserveStep,
        Opening,
    )
    from durable.model.job_end import why_given_up
    from durable.model.share import DesiredShare
    from durable.signals.names import WORKLOAD
    from durable.signals.registry import messages_to
    from durable.signals.status import WorkloadStatus
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, sentence_of
    from durable.workflows.handlers import accepts
    from durable.workflows.inbox import Inbox
    from durable.workflows.pages import workload_page
    from durable.workflows.steps import UNREACHABLE, audit_messages, run_step
    from durable.workflows.workload.admission import WorkloadAdmission
    from durable.workflows.workload.batch import must_check_deadline, next_parts, next_turn_at
    from durable.workflows.workload.state import (
        OpenPlacement,
        ShareName,
        WorkloadStart,
        WorkloadState,
    )

T = TypeVar("T")

MESSAGES = messages_to(WORKLOAD)
WAITS_KEPT = 20


@workflow.defn(name=WORKLOAD)
@accepts(MESSAGES)
class Workload(WorkloadAdmission):
    @workflow.init
    def __init__(self, start: WorkloadStart) -> None:
        self._tenant, self._workload = start.tenant, start.workload
        self._state = start.state or WorkloadState()
        self._inbox = Inbox(MESSAGES, self._state.messages)
        self._admitting = asyncio.Lock()
        self._is_due = False
        self._has_nothing_to_do = False
        self._must_recall = start.recalls
        # Whether this pass of the loop came by its own timer.
        self._woke_by_timer = False

    @workflow.run
    async def run(self, start: WorkloadStart) -> WorkloadStatus | None:
        await self._begin()
        if not await self._was_admitted():
            return None
        while True:
            await self._read_messages()
            await self._go_on()
            await audit_messages(self._state.messages, WorkloadActivities.audit)
            await self._observe()
            self._mind_job()
            await self._mind_deadline()
            await self._divide()
            self._report()
            await self._let_handlers_finish()
            if await self._has_ended():
                return self._status()
            if self._must_continue():
                self._continue()
            await self._rest()

    async def _begin(self) -> None:
        """Goes on with what a run that was lost has left, however long the authority is away."""
        while self._must_recall:
            await self._go_on()
            if not self._must_recall:
                return
            workflow.set_current_details(f"**Waits**: {' '.join(self._state.waits)}")
            if self._must_continue():
                self._continue()
            await workflow.sleep(timeouts.UNREACHABLE_RETRY)

    def _continue(self) -> NoReturn:
        workflow.continue_as_new(
            WorkloadStart(self._tenant, self._workload, self._state, self._must_recall)
        )

    async def _go_on(self) -> None:
        """Takes over what the authority knows, where this run may remember something else."""
        if not self._must_recall:
            return
        try:
            async with self._admitting:
                recalled = await self._recall()
        except ApplicationError as error:
            self._failed("read what exists", error.message)
            return
        self._must_recall = False
        self._has_nothing_to_do = self._is_new
        if self._is_new or not (recalled is None or recalled.deleted):
            return
        if recalled is not None and recalled.is_finished_job(self._state.generation):
            # This run has finished it itself, in a task whose answer was lost.
            for placement in self._state.current_placements:
                self._state.must_read(placement.share)
        else:
            self._delete("it was deleted")

    async def _was_admitted(self) -> bool:
        """Whether there is anything to do: a workload whose first apply was refused ends here."""
        deadline = workflow.now() + timeouts.FIRST_APPLY
        while self._state.generation == 0 and workflow.now() < deadline:
            try:
                await workflow.wait_condition(self._can_go_on, timeout=deadline - workflow.now())
            except TimeoutError:
                break
            await self._read_messages()
            if self._has_nothing_to_do and workflow.all_handlers_finished():
                break
        await self._settle_refusal()
        return self._state.generation > 0

    async def _settle_refusal(self) -> None:
        """Answers and audits what came until now; an apply that comes meanwhile still counts."""
        for _ in range(timeouts.AUDIT_TRIES):
            if self._state.generation > 0:
                return
            await workflow.wait_condition(
                lambda: bool(self._inbox) or workflow.all_handlers_finished()
            )
            await self._read_messages()
            await audit_messages(self._state.messages, WorkloadActivities.audit)
            is_idle = not self._inbox and workflow.all_handlers_finished()
            if is_idle and not self._state.messages.unaudited:
                return
            if is_idle:
                await workflow.sleep(timeouts.AUDIT_RETRY)

    def _can_go_on(self) -> bool:
        # What placements report while it is being admitted is of a generation not known yet.
        has_messages = bool(self._inbox) and not self._admitting.locked()
        is_idle = self._has_nothing_to_do and workflow.all_handlers_finished()
        return self._state.generation > 0 or has_messages or is_idle

    # ── shares ──────────────────────────────────────────────────────────────────────────────────

    async def _observe(self) -> None:
        """Reads how far shares have come, where something may have changed."""
        state = self._state
        if self._woke_by_timer:
            self._must_recall |= bool(state.unrecalled)
            state.tries += bool(state.to_release)
            for placement in state.to_release:
                placement.revision = 0  # one that was terminated has heard nothing
                state.must_read(placement.share)
            self._woke_by_timer = False
        unread, state.unread = state.unread, []
        if not unread:
            return
        step = ObserveStep(
            tenant=self._tenant,
            workload=self._workload,
            placements=tuple(self._key(share) for share in unread),
        )
        observed = await self._step(WorkloadActivities.observe, step, "read the shares")
        if observed is UNREACHABLE:
            state.unread += [share for share in unread if share not in state.unread]
            return
        state.unreachable = list(observed.unreachable)
        for share in unread:
            if share[1] in observed.unreachable:
                state.must_read(share)
        for report in observed.reports:
            state.learn(report)
        if any(placement.has_ended for placement in state.placements):
            state.tries = 0
        state.placements = [
            placement
            for placement in state.placements
            if not placement.has_ended or placement.generation == state.generation
        ]

    def _mind_job(self) -> None:
        """Ends a job that failed too often, and has its regions share what may run at once."""
        state = self._state
        if state.spec is None or state.is_ending:
            return
        state.given_up = why_given_up(state.spec, state.current_reports.values())
        if state.given_up is not None:
            state.done, state.share = True, {}
            self._revise()
            return
        before = dict(state.parts)
        parts = next_parts(state, workflow.now())
        if parts != before:
            state.parts = parts
            self._revise()

    async def _mind_deadline(self) -> None:
        """Has the authority record that a job missed its deadline, once its regions agree."""
        state = self._state
        if not must_check_deadline(state, workflow.now()):
            return
        current = [one.share for one in state.current_placements]
        step = DeadlineStep(
            tenant=self._tenant,
            workload=self._workload,
            generation=state.generation,
            placements=tuple(self._key(share) for share in current),
        )
        checked = await self._step(WorkloadActivities.check_deadline, step, "check the deadline")
        if checked is not UNREACHABLE:
            state.deadline_missed_at = checked.missed_at
            for report in checked.reports:
                state.learn(report)

    async def _divide(self) -> None:
        """Gives every region the slots it must have, as far as old claims allow, and its share."""
        state, revision = self._state, self._state.revision
        behind = self._placements_behind()
        if state.is_divided and not behind:
            return
        step = DivideStep(
            tenant=self._tenant,
            workload=self._workload,
            share=None if state.is_divided else state.share,
            transfer=f"{workflow.info().workflow_id}/r{revision}",
            revision=revision,
            generation=state.generation,
            openings=tuple(
                Opening(
                    key=self._key(placement.share),
                    share=self._share_of(placement),
                    is_first=placement.revision == 0 and placement.region not in state.reports,
                )
                for placement in behind
            ),
        )
        divided = await self._step(WorkloadActivities.divide, step, "divide the slots over regions")
        if divided is not UNREACHABLE:
            self._record_division(divided, behind, revision, had_slots=step.share is not None)
            if divided.newer_revision is not None:
                self._catch_up(divided.newer_revision)

    def _catch_up(self, newer_revision: int) -> None:
        """Begins again with what the authority knows: this run was reset, and remembers less."""
        self._state.revision = max(self._state.revision, newer_revision)
        self._must_recall = True
        self._revise()

    def _record_division(
        self, divided: Divided, sent: Sequence[OpenPlacement], revision: int, *, had_slots: bool
    ) -> None:
        """Placements were sent this revision, which need not be the newest any more."""
        state = self._state
        for placement in sent:
            if placement.region not in divided.unopened:
                placement.revision = revision
        if divided.unreachable is not None:
            self._failed("divide the slots over regions", divided.unreachable)
        elif had_slots:
            state.waits = list(divided.waits[:WAITS_KEPT])
            state.tries = state.tries + 1 if divided.waits else 0
            state.divided_revision = revision

    def _placements_behind(self) -> list[OpenPlacement]:
        """The placements that were not given their present share, or not asked to end."""
        state = self._state
        if state.spec is None:
            return []
        if not state.is_ending:
            opened = {placement.region for placement in state.current_placements}
            state.placements += [
                OpenPlacement(state.generation, region)
                for region in state.share
                if region not in opened
            ]
        return [
            placement
            for placement in state.placements
            if placement.revision != state.revision and not placement.has_ended
        ]

    def _share_of(self, placement: OpenPlacement) -> DesiredShare:
        """What a placement is to run; one that must end runs nothing."""
        state = self._state
        assert state.spec is not None
        is_past = placement.generation != state.generation
        reason = f"replaced by generation {state.generation}" if is_past else None
        if state.is_ending:
            reason = state.deleting or state.given_up or "the job is done"
        return DesiredShare(
            slots=() if reason else state.share.get(placement.region, ()),
            spec=state.spec,
            revision=state.revision,
            release_reason=reason,
            at_once=state.parts.get(placement.region, 0) if state.parts else None,
            admitted_at=None if state.due_at is None else state.admitted_at,
            due_at=state.due_at,
        )

    def _key(self, share: ShareName) -> PlacementKey:
        generation, region = share
        return PlacementKey(
            region=region, tenant=self._tenant, workload=self._workload, generation=generation
        )

    # ── steps and reporting ─────────────────────────────────────────────────────────────────────

    async def _step(
        self, activity: Callable[[Any, Any], Awaitable[T]], argument: object, summary: str
    ) -> T:
        """A step that is taken again later when it fails now."""
        try:
            return await run_step(activity, argument, summary)
        except STEP_FAILURES as error:
            self._failed(summary, sentence_of(error))
            return UNREACHABLE

    def _failed(self, what: str, why: str) -> None:
        self._state.waits = [f"Could not {what}: {why}"[:500]]
        self._state.tries += 1

    def _report(self) -> None:
        # No search attribute: a report must cause no command, or its order beside an update that
        # comes with it may not be the same on replay. Placements are searched by phase instead.
        status = self._status()
        self._state.conditions = list(status.conditions)
        workflow.set_current_details(workload_page(status, self._inbox.fresh_request_id()))

    @workflow.query(name="status", description="Counts, conditions and what it waits for.")
    def status(self) -> WorkloadStatus | None:
        return None if self._state.spec is None else self._status()

    def _status(self) -> WorkloadStatus:
        return self._state.status(self._tenant, self._workload, workflow.now())

    # ── resting, continuing, ending ─────────────────────────────────────────────────────────────

    async def _rest(self) -> None:
        wait, reason = self._next_wake()
        if wait is None:
            await workflow.wait_condition(self._has_work)
            return
        try:
            await workflow.wait_condition(
                self._has_work, timeout=wait, timeout_summary=f"waits: {reason}"[:200]
            )
        except TimeoutError:
            self._woke_by_timer = True

    def _has_work(self) -> bool:
        return bool(self._inbox) or self._is_due

    def _next_wake(self) -> tuple[timedelta | None, str]:
        """After how long to look again by itself, and what for."""
        wait, why = self._next_look()
        state, now = self._state, workflow.now()
        turn_at = None if state.is_ending else next_turn_at(state)
        if turn_at is not None and (wait is None or turn_at - now < wait):
            wait, why = max(turn_at - now, timeouts.SHORTEST_REST), "a region to use its part"
        if state.due_at is None or state.deadline_missed_at is not None or state.is_ending:
            return wait, why
        # The authority's clock has the last word, and may be behind.
        left = max(state.due_at - now, timeouts.DEADLINE_RETRY)
        return (left, "its deadline") if wait is None or left < wait else (wait, why)

    def _next_look(self) -> tuple[timedelta | None, str]:
        state = self._state
        is_unsure = self._must_recall or state.unread or state.unrecalled
        if is_unsure or state.waits or state.to_release or not state.is_open:
            wait = min(timeouts.DIVIDE_LONGEST, timeouts.DIVIDE_FIRST * 2 ** min(state.tries, 6))
            silent = [*state.unreachable, *state.unrecalled]
            away = [f"{region} does not answer" for region in silent]
            return wait, (state.waits or away or ["placements to end"])[0]
        if state.messages.unaudited:
            return timeouts.AUDIT_RETRY, "the audit"
        return None, ""

    async def _let_handlers_finish(self) -> None:
        """A handler that was just answered must not keep a run from ending, nor be left behind."""
        if self._state.is_ending or self._state.job_is_done or self._inbox.is_full():
            await workflow.wait_condition(
                lambda: self._has_work() or workflow.all_handlers_finished()
            )

    def _must_continue(self) -> bool:
        return self._inbox.is_full() and self._is_idle()

    def _is_idle(self) -> bool:
        return not self._has_work() and workflow.all_handlers_finished()

    async def _has_ended(self) -> bool:
        """Whether everything is released: deleted, or a job that is done."""
        state = self._state
        if not state.is_ending and not state.job_is_done:
            return False
        if not self._is_idle():
            return False
        if not state.is_ending:
            state.done, state.share = True, {}
            self._revise()
            return False
        if not state.is_divided or not all(one.has_ended for one in state.placements):
            return False
        status = self._status()
        step = FinishStep(
            tenant=self._tenant,
            workload=self._workload,
            generation=state.generation,
            deleted=state.deleting is not None,
            conditions=status.conditions,
            replicas_by_state={"completed": status.completed, "failures": status.failures},
        )
        if not state.is_finished:
            finished = await self._step(WorkloadActivities.finish, step, "finish")
            state.is_finished = finished is not UNREACHABLE
        # What came meanwhile is answered and audited before the workflow ends.
        return state.is_finished and self._is_idle() and not state.messages.unaudited
