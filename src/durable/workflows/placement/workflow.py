"""One region's share of one workload generation, from the queue to serving and back to nothing.

The loop reads top to bottom like the story of a placement. It is level-triggered: each step looks
at where every slot is and moves those that can move, so it does not matter what was missed or in
which order it came. Steps are idempotent by business keys: whatever dies between two lines, the
line is run again and finds what it did.
"""

from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from durable.activities.placement import PlacementActivities
    from durable.activities.steps import Claim, RecallStep, ReserveStep, StartStep, UrgencyStep
    from durable.model.placement.intents import ReleaseCause
    from durable.model.states import COMING_UP, BindingState, RequestState
    from durable.model.work.phases import PlacementPhase, SlotPhase
    from durable.model.work.workload import WorkloadKind
    from durable.reports.describe import describe
    from durable.signals import search_attributes
    from durable.signals.names import PLACEMENT, workload_id
    from durable.signals.payloads import Look
    from durable.signals.registry import messages_to
    from durable.workflows import timeouts
    from durable.workflows.attributes import ShownAttributes
    from durable.workflows.handlers import accepts
    from durable.workflows.inbox import Inbox
    from durable.workflows.placement.at_once import room_for_more
    from durable.workflows.placement.slots import ENDED, STARTED, Leave, SlotState
    from durable.workflows.placement.state import (
        NO_KEY,
        PlacementStart,
        PlacementState,
        start_of,
    )
    from durable.workflows.placement.steps import (
        MAX_SLOTS_PER_STEP,
        PlacementSteps,
        in_parts,
        summary_of,
    )
    from durable.workflows.starts import NO_INPUT, start_or_refusal
    from durable.workflows.steps import UNREACHABLE, audit_messages

T = TypeVar("T")

MESSAGES = messages_to(PLACEMENT)


@workflow.defn(name=PLACEMENT)
@accepts(MESSAGES)
class Placement(PlacementSteps):
    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        start, self._wrong_start = start_or_refusal(lambda: start_of(raw), PlacementStart(NO_KEY))
        self._state = PlacementState.begin(start.key, start.memory, workflow.now())
        self._slots = self._state.slots
        self._inbox = Inbox(MESSAGES, self._state.messages)
        self._done = set()
        # The search attributes as they are; a placement is started as progressing.
        started = {search_attributes.PHASE: PlacementPhase.PROGRESSING.value}
        self._attributes = ShownAttributes(started if start.memory is None else None)

    @workflow.run
    async def run(self, raw: RawValue = NO_INPUT) -> str:
        if self._wrong_start is not None:
            await self._settle_messages(self._wrong_start)
            raise self._wrong_start
        await self._recall_first()
        if self._state.share is None:
            await self._settle_messages()
            return "It has no share in its region: nothing was placed."
        while True:
            await self._read_messages()
            self._try_again_after_outage()
            await audit_messages(self._state.messages)
            await self._recall()
            await self._stop()
            await self._release()
            await self._weigh()
            await self._reserve()
            await self._bind()
            await self._start()
            await self._report()
            await self._let_handlers_finish()
            if self._is_over():
                await self._tell_owner()
                # What came meanwhile is read, answered and audited before it ends.
                if self._is_over():
                    return self._end()
            if self._must_continue():
                workflow.continue_as_new(PlacementStart(self._state.key, self._state.memory()))
            await self._rest()

    # ── the path ────────────────────────────────────────────────────────────────────────────────

    def _try_again_after_outage(self) -> None:
        state = self._state
        if state.is_cut_off and (state.next_retry_at or workflow.now()) <= workflow.now():
            state.pending = state.next_retry_at = None

    async def _recall_first(self) -> None:
        """Reads what exists before anything else; who started it is not believed about that."""
        while True:
            self._try_again_after_outage()
            await self._recall()
            if self._state.knows_past:
                return
            await self._read_messages()
            self._show_page()
            if self._must_continue():
                workflow.continue_as_new(PlacementStart(self._state.key, self._state.memory()))
            try:
                wait = (self._state.next_retry_at or workflow.now()) - workflow.now()
                wait = max(wait, timeouts.SHORTEST_REST)
                await workflow.wait_condition(self._inbox.__bool__, timeout=wait)
            except TimeoutError:
                continue

    async def _recall(self) -> None:
        """Reads share and claims from the region, when they may differ from what is remembered."""
        state, now = self._state, workflow.now()
        is_early = state.recall_at is not None and now < state.recall_at
        if not state.must_recall or is_early:
            return
        step = RecallStep(
            key=state.key,
            known_revision=state.revision if state.knows_past else 0,
            with_past=not state.knows_past,
        )
        facts = await self._step(PlacementActivities.recall, step, "read share and claims")
        while facts is not UNREACHABLE and facts.next_slot is not None:
            page = step.model_copy(update={"first_slot": facts.next_slot})
            more = await self._step(PlacementActivities.recall, page, "read more claims")
            facts = more if more is UNREACHABLE else facts.and_then(more)
        if facts is not UNREACHABLE:
            state.must_recall, state.recall_at = False, None
            state.learn(facts, workflow.now())

    async def _stop(self) -> None:
        """Asks nodes to stop what must leave; what was never started is simply released."""
        self._notice_deadlines()
        leaving = [slot for slot in self._slots.by_number.values() if slot.leave is not None]
        for slot in [slot for slot in leaving if slot.token is None]:
            if slot.leave is Leave.FOR_GOOD:
                del self._slots.by_number[slot.slot]
            else:
                slot.leave = None
        unstarted = [s for s in leaving if s.phase in (SlotPhase.RESERVED, SlotPhase.BOUND)]
        await self._free(unstarted, ReleaseCause.WITHDRAWN)
        running = [
            slot
            for slot in leaving
            if slot.phase in STARTED and slot.phase is not SlotPhase.STOPPING
        ]
        await self._take(
            PlacementActivities.stop,
            running,
            self._slots.stopping,
            passing=_NOT_ENDED if self._is_small else (),
        )

    def _notice_deadlines(self) -> None:
        now = workflow.now()
        for slot in self._slots.in_phase(SlotPhase.STARTING, SlotPhase.RUNNING):
            if slot.deadline is not None and slot.deadline <= now and slot.leave is None:
                missed = "start" if slot.phase is SlotPhase.STARTING else "become ready"
                self._slots.crashed(slot, now)
                slot.leave = Leave.AGAIN
                slot.evidence = f"did not {missed} on {slot.node} in time"

    async def _release(self) -> None:
        """Frees the claims of what has ended, and of nodes that were silent for too long."""
        now = workflow.now()
        await self._free(self._slots.in_phase(*ENDED), ReleaseCause.STOPPED)
        lost = [
            slot
            for slot in self._slots.in_phase(SlotPhase.UNKNOWN, SlotPhase.STOPPING)
            if slot.deadline is not None and slot.deadline <= now
        ]
        leaving = [slot for slot in lost if slot.leave is not None]
        await self._free(leaving, ReleaseCause.NODE_LOST)
        staying = [slot for slot in lost if slot.leave is None]
        await self._free(staying, ReleaseCause.NODE_LOST, unless_fenced=True)
        reserved = self._slots.in_phase(SlotPhase.RESERVED)
        lapsed = [slot for slot in reserved if slot.has_lapsed]
        await self._take(PlacementActivities.expire, lapsed, self._freed)

    async def _weigh(self) -> None:
        """Finds out how urgent a job with a deadline has become."""
        state, now, share = self._state, workflow.now(), self._state.share
        if share is None or share.admitted_at is None or share.due_at is None:
            return
        has_ended = state.urgency_until is not None and state.urgency_until <= now
        if (state.knows_urgency and not has_ended) or not self._slots.in_phase(SlotPhase.WAITING):
            return
        step = UrgencyStep(
            key=state.key,
            priority=share.spec.priority,
            admitted_at=share.admitted_at,
            due_at=share.due_at,
        )
        found = await self._step(PlacementActivities.urgency, step, "weigh its deadline")
        if found is UNREACHABLE:
            return
        wait = None if found.seconds is None else timedelta(seconds=found.seconds)
        state.urgency, state.knows_urgency = found.raised_by, True
        state.urgency_until = None if wait is None else workflow.now() + wait

    async def _reserve(self) -> None:
        """Decides where waiting slots go, and reserves."""
        state, now = self._state, workflow.now()
        due = [s for s in self._slots.in_phase(SlotPhase.WAITING) if _is_due(s, now)]
        is_early = state.next_retry_at is not None and now < state.next_retry_at
        room = room_for_more(state.share, self._slots)
        due = due[:room]
        if not due or is_early or not self._places:
            return
        # Base slots first, and spread as if there were no scaffolding, which soon comes down.
        live = self._slots.live()
        base = [slot for slot in due if slot.slot < state.spec.replicas]
        if base:
            due = base
            live = tuple(one for one in live if one.slot < state.spec.replicas)
        step = ReserveStep(
            key=state.key,
            spec=state.spec_to_place,
            slots=tuple(slot.slot for slot in due),
            first_attempt=state.next_attempt,
            tries=state.tries,
            live=live,
            crashes=tuple(crash for slot in due for crash in slot.crashes),
            urgency=state.urgency,
            incident=None if state.share is None else state.share.incident,
        )
        reserved = await self._step(PlacementActivities.reserve, step, summary_of("reserve", due))
        if reserved is UNREACHABLE:
            return
        now = workflow.now()
        state.next_attempt = reserved.next_attempt
        state.policy_revision = reserved.policy_revision
        state.must_recall |= bool(reserved.taken) or reserved.replayed
        for claim in reserved.claims:
            self._slots.reserved(claim, now)
        state.pending, state.decided_version = reserved.pending, reserved.decided_version
        state.tries = 0 if reserved.pending is None else state.tries + 1
        retry_after = timedelta(seconds=reserved.retry_after_seconds)
        state.next_retry_at = None if reserved.pending is None else now + retry_after

    async def _bind(self) -> None:
        """Makes reservations permanent."""
        if self._places:
            reserved = [s for s in self._staying(SlotPhase.RESERVED) if not s.has_lapsed]
            await self._take(PlacementActivities.bind, reserved, self._slots.bound)

    async def _start(self) -> None:
        """Asks nodes to start what is bound; often it serves before the answer comes."""
        state, bound = self._state, self._staying(SlotPhase.BOUND)
        if not bound or not self._places:
            return
        state.begin_wait(workflow.now())
        for part in in_parts(bound):
            request = state.request(workflow.now())
            step = StartStep(
                key=state.key,
                claims=tuple(slot.claim for slot in part),
                why="start the slot",
                request=None if request == state.written else request,
                passing=_COMING_UP[state.spec.kind] if self._is_small else (),
            )
            started = await self._step(PlacementActivities.start, step, summary_of("start", part))
            if started is UNREACHABLE:
                return
            state.written = request
            self._believe(started, "start", self._started)

    @property
    def _is_small(self) -> bool:
        """Whether what is observed of all its slots fits into one answer."""
        return len(self._slots.by_number) <= MAX_SLOTS_PER_STEP

    @property
    def _places(self) -> bool:
        """Whether it may place anything new."""
        return self._state.releasing is None

    def _staying(self, phase: SlotPhase) -> list[SlotState]:
        return [slot for slot in self._slots.in_phase(phase) if slot.leave is None]

    def _started(self, claim: Claim, now: datetime) -> None:
        self._slots.started(claim, now, self._state.spec)

    # ── reporting ───────────────────────────────────────────────────────────────────────────────

    async def _report(self) -> None:
        """Shows what this placement is: in the region's queue, on its page, to searches."""
        await self._enqueue()
        self._show_page()
        reason = self._state.reason
        self._attributes.show(
            {
                search_attributes.PHASE: self._state.phase.value,
                search_attributes.PENDING_REASON: None if reason is None else reason.code.value,
            }
        )

    def _show_page(self) -> None:
        report = describe(self._state.status(), workflow.now())
        workflow.set_current_details(report.as_markdown(self._inbox.fresh_request_id()))

    async def _enqueue(self) -> None:
        """Writes its row in the region's queue, if it has changed."""
        self._state.begin_wait(workflow.now())
        request = self._state.request(workflow.now())
        if request != self._state.written:
            why = await self._step(PlacementActivities.enqueue, request, "write the queue's row")
            if why is None:
                self._state.written = request
            elif why is not UNREACHABLE:
                self._state.must_recall = True  # its share has changed: it has not ended

    # ── resting, continuing, ending ─────────────────────────────────────────────────────────────

    async def _rest(self) -> None:
        wake_at = self._wake_at()
        if wake_at is None:
            await workflow.wait_condition(self._inbox.__bool__)
            return
        reason = self._state.reason
        waits_for = self._state.phase if reason is None else reason.code
        try:
            await workflow.wait_condition(
                self._inbox.__bool__,
                timeout=max(wake_at - workflow.now(), timeouts.SHORTEST_REST),
                timeout_summary=f"waits: {waits_for}",
            )
        except TimeoutError:
            return

    def _wake_at(self) -> datetime | None:
        """The next moment at which something is due by itself."""
        state, now = self._state, workflow.now()
        if state.is_cut_off:
            return state.next_retry_at
        moments: list[datetime | None] = []
        if state.messages.unaudited:
            moments.append(state.messages.audit_at)
        if state.must_recall:
            moments.append(state.recall_at or now)
        # What was refused is asked again once the claims were read, not before.
        next_step_at = state.recall_at or now
        has_room = room_for_more(state.share, self._slots) != 0
        for slot in self._slots.by_number.values():
            if slot.has_step_left():
                moments.append(next_step_at)
            elif slot.phase is not SlotPhase.WAITING:
                moments += [slot.deadline, slot.lease_expires_at]
            elif has_room:
                moments.append(max(filter(None, (slot.retry_at, state.next_retry_at)), default=now))
        if state.is_waiting:
            moments.append(state.urgency_until)
        if state.is_waiting and now < state.placed_by:
            moments.append(state.placed_by)  # from then on the queue says that it is late
        return min((moment for moment in moments if moment is not None), default=None)

    async def _let_handlers_finish(self) -> None:
        """A handler that was just answered must not keep a run from ending, nor be left behind."""
        if self._state.has_ended or self._inbox.is_full():
            await self._inbox.let_handlers_finish()

    def _must_continue(self) -> bool:
        return self._inbox.is_full() and not self._inbox and workflow.all_handlers_finished()

    def _is_over(self) -> bool:
        state, is_idle = self._state, not self._inbox and workflow.all_handlers_finished()
        # Its workload learns of the end from the withdrawn request, so that has to be written.
        return state.has_ended and is_idle and not state.messages.unaudited and self._is_withdrawn()

    def _is_withdrawn(self) -> bool:
        written = self._state.written
        return written is not None and written.state is RequestState.WITHDRAWN

    async def _tell_owner(self) -> None:
        key = self._state.key
        owner = workflow.get_external_workflow_handle(workload_id(key.tenant, key.workload))
        hint = Look(why="a placement ended", region=key.region, generation=key.generation)
        try:
            await owner.signal("look", hint)
        except FailureError:
            workflow.logger.info("the workload has ended before its placement")

    def _end(self) -> str:
        completed = len(self._slots.in_phase(SlotPhase.COMPLETED))
        given_up = len(self._slots.in_phase(SlotPhase.GIVEN_UP))
        return f"Nothing is left: {completed} completed, {given_up} given up, the rest released."


# A job has arrived when it runs.
_COMING_UP = {
    WorkloadKind.JOB: (BindingState.BOUND, BindingState.STARTING),
    WorkloadKind.SERVICE: COMING_UP,
}

# What a node that is lost will never report is not waited for.
_NOT_ENDED = (*COMING_UP, BindingState.SERVING)


def _is_due(slot: SlotState, now: datetime) -> bool:
    return slot.leave is None and (slot.retry_at is None or slot.retry_at <= now)
