"""Desired state: what was applied, divided over regions, driven to serving, and released.

The workload owns the slots and the placements' shares; placements own everything that happens to a
slot in a region. What regions report comes from the authority, not from the placements' memory.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import (
        DeadlineStep,
        DivideResult,
        DivideStep,
        FinishStep,
        ObserveStep,
        PlacementKey,
    )
    from durable.activities.workload import WorkloadActivities
    from durable.model.states import BindingState
    from durable.model.work.job_end import why_given_up
    from durable.reports.describe import describe
    from durable.signals.names import WORKLOAD
    from durable.signals.registry import messages_to
    from durable.signals.status import WorkloadStatus
    from durable.validation.text import shorten
    from durable.workflows import timeouts
    from durable.workflows.failures import STEP_FAILURES, sentence_of
    from durable.workflows.handlers import accepts
    from durable.workflows.inbox import Inbox
    from durable.workflows.starts import NO_INPUT, start_or_refusal
    from durable.workflows.steps import UNREACHABLE, audit_messages, run_step
    from durable.workflows.workload.admission import WorkloadAdmission
    from durable.workflows.workload.batch import (
        must_check_deadline,
        next_parts,
        next_turn_at,
        timed_parts,
    )
    from durable.workflows.workload.state import (
        NO_NAME,
        ShareName,
        WorkloadStart,
        WorkloadState,
        start_of,
    )

T = TypeVar("T")

MESSAGES = messages_to(WORKLOAD)
WAITS_KEPT = 20


@workflow.defn(name=WORKLOAD)
@accepts(MESSAGES)
class Workload(WorkloadAdmission):
    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        start, self._wrong_start = start_or_refusal(lambda: start_of(raw), WorkloadStart(*NO_NAME))
        self._tenant, self._workload = start.tenant, start.workload
        self._state = start.state or WorkloadState()
        self._inbox = Inbox(MESSAGES, self._state.messages)
        self._is_due = self._is_cut_off = False
        self._has_nothing_to_do = False
        self._must_recall = start.recalls
        # Whether this pass of the loop came by its own timer.
        self._woke_by_timer = False

    @workflow.run
    async def run(self, raw: RawValue = NO_INPUT) -> WorkloadStatus | None:
        if self._wrong_start is not None:
            await self._settle_messages(self._wrong_start)
            raise self._wrong_start
        await self._begin()
        if not await self._was_admitted():
            return None
        while True:
            await self._read_messages()
            await self._go_on()
            await audit_messages(self._state.messages)
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
            await self._read_messages()
            workflow.set_current_details(f"**Waits**: {' '.join(self._state.waits)}")
            if self._must_continue():
                self._continue()
            wait = timeouts.outage_wait(self._state.tries)
            await self._inbox.rest(wait, "the authority answers")

    def _continue(self) -> NoReturn:
        workflow.continue_as_new(
            WorkloadStart(self._tenant, self._workload, self._state, self._must_recall)
        )

    async def _go_on(self) -> None:
        """Takes over what the authority knows, where this run may remember something else."""
        if not self._must_recall:
            return
        try:
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
            self._divide_again()
        else:
            known = "it was deleted" if recalled is not None else "the authority does not know it"
            self._delete(known)

    async def _was_admitted(self) -> bool:
        """Whether there is anything to do: a workload whose first apply was refused ends here."""
        deadline = workflow.now() + timeouts.FIRST_APPLY
        while self._state.generation == 0 and workflow.now() < deadline:
            await self._read_messages()
            await audit_messages(self._state.messages)
            if self._state.generation > 0 or self._has_nothing_to_do:
                break
            await self._inbox.rest(deadline - workflow.now(), "its first apply")
        await self._settle_refusal()
        return self._state.generation > 0

    async def _settle_refusal(self) -> None:
        """Answers and audits what came until now; an apply that comes meanwhile still counts."""
        while self._state.generation == 0:
            # First: a sender who is answered waits for the audit.
            await audit_messages(self._state.messages)
            await self._inbox.let_handlers_finish()
            await self._read_messages()
            await audit_messages(self._state.messages)
            is_idle = self._inbox.is_idle
            if is_idle and not self._state.messages.unaudited:
                return
            if is_idle and self._inbox.is_full():
                self._continue()
            if is_idle or self._inbox.waits_for_audit:
                await workflow.sleep(timeouts.AUDIT_RETRY)

    # ── shares ──────────────────────────────────────────────────────────────────────────────────

    async def _observe(self) -> None:
        """Reads how far shares have come, where something may have changed."""
        state = self._state
        if self._woke_by_timer:
            # A run that was terminated has heard nothing, and a hint may be lost.
            state.must_divide |= state.is_changing or state.look_at is not None
            self._woke_by_timer = False
        unread, state.unread = state.unread, []
        if unread and state.is_changing:
            state.must_divide = True
        if not unread or state.must_divide:
            return  # a division reads everything
        step = ObserveStep(
            tenant=self._tenant,
            workload=self._workload,
            placements=tuple(self._key(share) for share in unread),
            completes=state.completes,
            serving_elsewhere=sum(
                one.by_state.get(BindingState.SERVING, 0)
                for one in state.current_reports.values()
                if (one.generation, one.region) not in unread
            ),
            wanted=0 if state.spec is None else state.spec.replicas,
        )
        observed = await self._step(WorkloadActivities.observe, step, "read the shares")
        if observed is UNREACHABLE:
            state.unread += [share for share in unread if share not in state.unread]
            return
        state.unreachable = list(observed.unreachable)
        for share in unread:
            if share[1] in observed.unreachable:
                state.must_read(share)
        # What does not answer is read again after 1, 2, 4 ... seconds.
        state.tries = state.tries + 1 if state.unread else 0
        state.recoverable = observed.recoverable
        if observed.is_complete:
            state.stable = step.completes
        for report in observed.reports:
            state.learn(report)
            state.must_divide |= report.to_replace > 0

    def _mind_job(self) -> None:
        """Ends a job that failed too often, and has its regions share what may run at once."""
        state = self._state
        if state.spec is None or state.is_ending:
            return
        state.given_up = why_given_up(state.spec, state.current_reports.values())
        if state.given_up is not None:
            state.done, state.share = True, {}
            self._divide_again()
            return
        if not state.knows_regions:
            return  # what they hold of its parallelism is read first
        before = dict(state.parts)
        parts = next_parts(state, workflow.now())
        if parts != before:
            state.parts = parts
            self._divide_again()

    async def _mind_deadline(self) -> None:
        """Has the authority record that a job missed its deadline, once its regions agree."""
        state = self._state
        if not must_check_deadline(state, workflow.now()):
            return
        step = DeadlineStep(
            tenant=self._tenant,
            workload=self._workload,
            generation=state.generation,
            placements=tuple(
                self._key((state.generation, region)) for region in sorted(timed_parts(state))
            ),
        )
        checked = await self._step(WorkloadActivities.check_deadline, step, "check the deadline")
        if checked is not UNREACHABLE:
            state.deadline_missed_at = checked.missed_at
            for report in checked.reports:
                state.learn(report)
                # A hint at the same is no news any more.
                state.must_divide |= report.to_replace > 0 or state.is_changing

    async def _divide(self) -> None:
        """Takes the next step towards what is wanted, as far as what exists allows."""
        state, self._is_due = self._state, False
        if state.is_finished:
            # Its end is recorded, and the authority would no longer say what became of it.
            state.must_divide = False
        if not state.must_divide or state.spec is None:
            return
        step = DivideStep(
            tenant=self._tenant,
            workload=self._workload,
            first_revision=None if state.is_ending else state.first_revision,
            ending=self._why_it_ends(),
            generation=state.generation,
            opened=state.opened,
            parts=state.parts if state.knows_regions else None,
        )
        state.must_divide, state.look_at = False, None
        divided = await self._step(WorkloadActivities.divide, step, self._what_is_divided())
        if divided is UNREACHABLE:
            state.must_divide = True
            return
        if divided.must_recall:
            self._must_recall = self._is_due = True
        else:
            self._record_division(divided)

    def _record_division(self, divided: DivideResult) -> None:
        state = self._state
        current = divided.current
        if not state.is_ending:
            # What is wanted is the authority's to say: a rollout may have been rolled back.
            state.generation, state.spec = current.generation, current.spec
            state.share = dict(current.share)
        state.first_revision, state.divided_generation = None, current.generation
        state.stable, state.recoverable = divided.stable, divided.recoverable
        state.open, state.claims = list(divided.open), divided.claims
        state.opened = dict(divided.opened)
        state.rollout, state.progress = divided.rollout, divided.progress
        state.unreachable = list(divided.unreachable)
        # How far a job came is still to be said when its shares are closed.
        state.reports = list(state.current_reports.values()) if state.is_ending else []
        for report in divided.reports:
            state.learn(report)
        away = [f"{region}: {why}" for region, why in divided.unreachable.items()]
        state.waits = [*divided.waits, *away][:WAITS_KEPT]
        state.must_divide = bool(state.waits or divided.unopened or divided.is_overtaken)
        state.tries = state.tries + 1 if state.must_divide or state.is_ending else 0
        if divided.look_again_seconds is not None:
            after = timedelta(seconds=divided.look_again_seconds)
            state.look_at = workflow.now() + max(after, timeouts.SHORTEST_REST)

    def _why_it_ends(self) -> str | None:
        state = self._state
        if not state.is_ending:
            return None
        return state.deleting or state.given_up or "the job is done"

    def _what_is_divided(self) -> str:
        """The step in the words of the history."""
        state = self._state
        if state.is_ending:
            return "stop everything and give up the slots"
        if state.progress is not None:
            return f"{state.progress.step}: plan the next shares"
        return "divide the slots over regions"

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
        self._state.waits = [shorten(f"Could not {what}: {why}")]
        self._state.tries += 1

    def _report(self) -> None:
        # No search attribute: a report must cause no command, or its order beside an update that
        # comes with it may not be the same on replay. Placements are searched by phase instead.
        status = self._status()
        self._state.conditions = list(status.conditions)
        page = describe(status, workflow.now()).as_markdown(self._inbox.fresh_request_id())
        workflow.set_current_details(page)

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
        waits: list[tuple[timedelta, str]] = []
        if self._must_recall or state.must_divide or state.unread or state.is_ending:
            wait = min(timeouts.DIVIDE_LONGEST, timeouts.DIVIDE_FIRST * 2 ** min(state.tries, 6))
            away = [f"{region} does not answer" for region in state.unreachable]
            waits.append((wait, (state.waits or away or ["placements to end"])[0]))
        elif state.is_changing:
            step = "replacing" if state.progress is None else state.progress.step
            waits.append((timeouts.DIVIDE_LONGEST, step.replace("_", " ")))
        if state.look_at is not None:
            step = "the minimum ready time" if state.progress is None else state.progress.step
            waits.append((max(state.look_at - workflow.now(), timeouts.SHORTEST_REST), step))
        if state.messages.unaudited:
            waits.append((timeouts.AUDIT_RETRY, "the audit"))
        return min(waits, default=(None, ""), key=lambda one: one[0])

    async def _let_handlers_finish(self) -> None:
        """A handler that was just answered must not keep a run from ending, nor be left behind."""
        if self._state.is_ending or self._state.job_is_done or self._inbox.is_full():
            await self._inbox.let_handlers_finish(self._has_work)

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
            self._divide_again()
            return False
        if not state.is_released:
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
            # A hint that arrives with the last command has the whole task run again: what it did
            # is in the history by then, and the hint is read.
            await workflow.sleep(timeouts.SHORTEST_REST, summary="late hints")
        # What came meanwhile is answered and audited before the workflow ends.
        return state.is_finished and self._is_idle() and not state.messages.unaudited
