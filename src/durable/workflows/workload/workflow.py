"""Desired state: what somebody applied, divided over regions, driven to serving, and released.

The workload owns the slots and the placements' shares; placements own everything that happens to a
slot in a region. What regions report comes from the authority, not from the placements' memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import PlacementKey
    from durable.activities.workload import WorkloadActivities
    from durable.activities.workload_steps import (
        Divided,
        DivideStep,
        FinishStep,
        Opening,
        ReleaseStep,
    )
    from durable.signals.names import WORKLOAD
    from durable.signals.payloads import PlacementEnded, SetShare
    from durable.signals.registry import messages_to
    from durable.signals.status import WorkloadStatus
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, sentence_of
    from durable.workflows.handlers import accepts
    from durable.workflows.inbox import Inbox
    from durable.workflows.pages import workload_page
    from durable.workflows.steps import UNREACHABLE, audit_messages, run_step
    from durable.workflows.workload.admission import WorkloadAdmission
    from durable.workflows.workload.state import OpenPlacement, WorkloadStart, WorkloadState

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
        self._was_refused = False
        # Whether this pass of the loop came by its own timer.
        self._woke_by_timer = False

    @workflow.run
    async def run(self, start: WorkloadStart) -> WorkloadStatus | None:
        if not await self._was_admitted():
            return None
        while True:
            await self._read_messages()
            await audit_messages(self._state.messages, WorkloadActivities.audit)
            await self._release_old()
            await self._divide()
            self._report()
            await self._let_handlers_finish()
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
                await workflow.wait_condition(self._can_go_on, timeout=deadline - workflow.now())
            except TimeoutError:
                break
            await self._read_messages()
            if self._was_refused and workflow.all_handlers_finished():
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
        was_refused = self._was_refused and workflow.all_handlers_finished()
        return self._state.generation > 0 or has_messages or was_refused

    # ── shares ──────────────────────────────────────────────────────────────────────────────────

    async def _release_old(self) -> None:
        """Asks placements of older generations, or all of them at the end, to release their slots.

        Again whenever the timer fires, because one that was terminated has heard nothing.
        """
        state = self._state
        for placement in state.to_release:
            if placement.release_revision == state.revision and not self._woke_by_timer:
                continue
            placement.release_revision = state.revision
            step = ReleaseStep(
                key=self._key(placement),
                share=self._share_of(()),
                reason=state.deleting or f"replaced by generation {state.generation}",
                request=f"g{state.generation}-r{state.revision}",
                task_timeout=timeouts.WORKFLOW_TASK,
            )
            runs = await self._step(WorkloadActivities.release, step, f"release {placement.region}")
            if runs is False:
                placement.ended = _ended(placement)
        self._woke_by_timer = False
        state.placements = [
            placement
            for placement in state.placements
            if placement.ended is None or placement.generation == state.generation
        ]

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
            openings=tuple(
                Opening(
                    key=self._key(placement),
                    share=self._share_of(state.share.get(placement.region, ())),
                    is_first=placement.revision == 0,
                )
                for placement in behind
            ),
            task_timeout=timeouts.WORKFLOW_TASK,
        )
        divided = await self._step(WorkloadActivities.divide, step, "divide the slots over regions")
        if divided is not UNREACHABLE:
            self._record_division(divided, behind, revision, had_slots=step.share is not None)

    def _record_division(
        self, divided: Divided, sent: Sequence[OpenPlacement], revision: int, *, had_slots: bool
    ) -> None:
        """Placements were sent this revision, which need not be the newest any more."""
        state = self._state
        for placement in sent:
            placement.revision = revision
            if placement.region in divided.ended and placement.ended is None:
                placement.ended = _ended(placement)
        if divided.unreachable is not None:
            self._failed("divide the slots over regions", divided.unreachable)
        elif had_slots:
            state.waits = list(divided.waits[:WAITS_KEPT])
            state.tries = state.tries + 1 if divided.waits else 0
            state.divided_revision = revision

    def _placements_behind(self) -> list[OpenPlacement]:
        """The placements of this generation that were not sent their present share."""
        state = self._state
        if state.is_ending or state.spec is None:
            return []
        opened = {placement.region for placement in state.current_placements}
        state.placements += [
            OpenPlacement(state.generation, region)
            for region in state.share
            if region not in opened
        ]
        return [
            placement
            for placement in state.current_placements
            if placement.revision != state.revision and placement.ended is None
        ]

    def _share_of(self, slots: tuple[int, ...]) -> SetShare:
        assert self._state.spec is not None
        return SetShare(slots=slots, spec=self._state.spec, revision=self._state.revision)

    def _key(self, placement: OpenPlacement) -> PlacementKey:
        return PlacementKey(
            region=placement.region,
            tenant=self._tenant,
            workload=self._workload,
            generation=placement.generation,
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
        workflow.set_current_details(workload_page(status))

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
        state = self._state
        if state.waits or state.to_release or not state.is_open:
            wait = min(timeouts.DIVIDE_LONGEST, timeouts.DIVIDE_FIRST * 2 ** min(state.tries, 6))
            return wait, (state.waits or ["placements to end"])[0]
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
        if not state.is_divided or any(placement.ended is None for placement in state.placements):
            return False
        status = self._status()
        step = FinishStep(
            tenant=self._tenant,
            workload=self._workload,
            generation=state.generation,
            deleted=state.deleting is not None,
            conditions=status.conditions,
            replicas_by_state={"completed": status.completed},
        )
        if not state.is_finished:
            finished = await self._step(WorkloadActivities.finish, step, "finish")
            state.is_finished = finished is not UNREACHABLE
        # What came meanwhile is answered and audited before the workflow ends.
        return state.is_finished and self._is_idle() and not state.messages.unaudited


def _ended(placement: OpenPlacement) -> PlacementEnded:
    return PlacementEnded(region=placement.region, generation=placement.generation)
