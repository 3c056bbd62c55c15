"""One region's share of one workload generation, from the queue to serving and back to nothing.

The loop reads top to bottom like the story of a placement. It is level-triggered: each step looks
at where every slot is and moves those that can move, so it does not matter what was missed or in
which order it came. Steps are idempotent by business keys: whatever dies between two lines, the
line is run again and finds what it did.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from durable.activities.placement import PlacementActivities
    from durable.activities.steps import (
        ClaimsStep,
        GoOn,
        PlaceStep,
        Progress,
        Started,
        StartStep,
        Stepped,
    )
    from durable.model.intents import ReleaseCause
    from durable.model.pending import Pending
    from durable.model.pending_reasons import Unreachable
    from durable.model.refusal import RefusalCode
    from durable.model.states import COMING_UP, BindingState
    from durable.model.workload import WorkloadKind
    from durable.signals import messages, search_attributes
    from durable.signals.messages import Ended, Resize
    from durable.signals.names import PLACEMENT, WORKLOAD_CONTROLLER, workload_id
    from durable.signals.status import Phase
    from durable.workflows import timeouts
    from durable.workflows.details import placement_details
    from durable.workflows.failures import STEP_FAILURES, said_by
    from durable.workflows.inbox import Inbox, Letter
    from durable.workflows.placement.messages import KINDS, PlacementMessages
    from durable.workflows.placement.slots import ENDED, STARTED, Leave, SlotState
    from durable.workflows.placement.state import AWAY, PlacementStart, PlacementState
    from durable.workflows.stepping import audit_people, run_step

T = TypeVar("T")

# The answer of more slots than this, with what was seen of each, may not fit into one payload.
TOGETHER_AT_MOST = 1_000


@workflow.defn(name=PLACEMENT)
class Placement(PlacementMessages):
    @workflow.init
    def __init__(self, start: PlacementStart) -> None:
        self._state = start.state or PlacementState(
            share=start.share, spec=start.wanted.spec, enqueued_at=workflow.now()
        )
        self._board = self._state.board
        self._inbox = Inbox(KINDS, self._state.messages)
        begun = start.state is None
        self._shown = (search_attributes.PROGRESSING if begun else "", _NO_REASON)
        if start.state is None:
            self._resize(start.wanted)

    @workflow.run
    async def run(self, start: PlacementStart) -> Ended:
        while True:
            self._read_messages()
            self._try_again_after_outage()
            await audit_people(self._state.messages, PlacementActivities.audit)
            await self._look_again()
            await self._stop()
            await self._release()
            await self._place()
            await self._tell()
            if self._is_over():
                return await self._end()
            if self._must_continue():
                workflow.continue_as_new(
                    PlacementStart(self._state.share, self._state.wanted(), self._state)
                )
            await self._rest()

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    def _read_messages(self) -> None:
        while (letter := self._inbox.next()) is not None:
            try:
                letter.answer = self._read(letter)
                if isinstance(letter.message, messages.Hold | messages.Resume | messages.Evict):
                    self._inbox.audit(letter, letter.answer)
            except ApplicationError as refused:
                self._inbox.forget(letter)
                self._inbox.reject(
                    letter.name, letter.message.model_dump(mode="json"), refused.message
                )
                letter.answer = refused.message

    def _read(self, letter: Letter) -> str:
        now, message = workflow.now(), letter.message
        match message:
            case messages.Hold():
                self._state.held_by = f"{message.actor}: {message.reason}"
                self._state.held_since = now
                # A task that was lost may have started something, and nothing else will tell.
                self._state.look_again, self._state.look_again_at = True, None
                return "Held: nothing new is placed until somebody resumes."
            case messages.Resume():
                held, self._state.held_by = self._state.held_by, None
                self._retry(now)
                return "It was not held." if held is None else f"Resumed; it was held by {held}."
            case messages.RetryNow() | messages.Wake():
                self._retry(now)
                return "Looking for a place now."
            case messages.Evict():
                return self._evict(message)
            case messages.Release():
                return self._let_go(message)
            case messages.Resize():
                return self._resize(message)
            case messages.Seen():
                self._state.look_again |= self._board.see(message, now, self._state.spec)
                return "Seen."
            case _:
                raise AssertionError(f"a kind of message without a reader: {letter.name}")

    def _let_go(self, message: messages.Release) -> str:
        if message.actor != WORKLOAD_CONTROLLER:
            raise ApplicationError(
                "A placement is released by its workload alone: delete or scale the workload to "
                "stop slots for good, or send evict to have them placed again."
            )
        self._state.releasing = message.reason
        self._state.look_again, self._state.look_again_at = True, None
        for slot in self._board.slots.values():
            slot.leave, slot.evidence = Leave.FOR_GOOD, message.reason
        return "Stopping every slot; the placement ends when nothing of it is left."

    def _resize(self, wanted: Resize) -> str:
        if wanted.revision <= self._state.revision or self._state.releasing is not None:
            return "There is a newer share."
        self._state.revision, self._state.spec = wanted.revision, wanted.spec
        if self._board.resize(wanted.slots, workflow.now()):
            # A claim whose answer was lost is known to the authority alone.
            self._state.look_again = True
        self._retry(workflow.now())
        return "Taken."

    def _evict(self, message: messages.Evict) -> str:
        chosen = message.slots or tuple(self._board.slots)
        unknown = sorted(set(chosen) - set(self._board.slots))
        if unknown:
            raise ApplicationError(f"There is no slot {unknown[0]} here.")
        why = f"evicted by {message.actor}: {message.reason}"[:500]
        evicted = [self._board.slots[number] for number in chosen]
        evicted = [slot for slot in evicted if slot.token is not None and slot.leave is None]
        for slot in evicted:
            slot.leave, slot.evidence = Leave.AGAIN, why
        if not evicted:
            return "Nothing to stop: it is waiting for a place, or being stopped already."
        again = "when somebody resumes" if self._state.held_by is not None else "as it stops"
        return f"Stopping {_numbers(evicted)}; each is placed again {again}."

    def _retry(self, now: datetime) -> None:
        self._state.next_retry_at = None
        for slot in self._board.in_phase(Phase.WAITING):
            slot.retry_at = None

    def _try_again_after_outage(self) -> None:
        state = self._state
        if state.is_cut_off and (state.next_retry_at or workflow.now()) <= workflow.now():
            state.pending = state.next_retry_at = None

    # ── the path ────────────────────────────────────────────────────────────────────────────────

    async def _look_again(self) -> None:
        """Reads what stands in the authority, when it is not what was remembered."""
        state, now = self._state, workflow.now()
        if not state.look_again or (state.look_again_at is not None and now < state.look_again_at):
            return
        found = await self._step(PlacementActivities.survey, self._state.share, "read what stands")
        if found is not _UNREACHABLE:
            state.look_again, state.look_again_at = False, None
            self._board.adopt(found, workflow.now(), self._state.spec)

    async def _stop(self) -> None:
        """Asks nodes to stop what must leave; what was never started is simply released."""
        self._notice_deadlines()
        leaving = [slot for slot in self._board.slots.values() if slot.leave is not None]
        for slot in [slot for slot in leaving if slot.token is None]:
            if slot.leave is Leave.FOR_GOOD:
                del self._board.slots[slot.slot]
            else:
                slot.leave = None
        unstarted = [slot for slot in leaving if slot.phase in (Phase.RESERVED, Phase.BOUND)]
        await self._free(unstarted, ReleaseCause.WITHDRAWN)
        running = [s for s in leaving if s.phase in STARTED and s.phase is not Phase.STOPPING]
        await self._take(PlacementActivities.evict, running, "stop", self._board.stopping)

    async def _release(self) -> None:
        """Frees the claims of what has ended, and of nodes that were silent for too long."""
        now = workflow.now()
        await self._free(self._board.in_phase(*ENDED), ReleaseCause.STOPPED)
        lost = [
            slot
            for slot in self._board.in_phase(Phase.UNKNOWN, Phase.STOPPING)
            if slot.deadline is not None and slot.deadline <= now
        ]
        await self._free(lost, ReleaseCause.NODE_LOST)
        lapsed = [slot for slot in self._board.in_phase(Phase.RESERVED) if self._has_lapsed(slot)]
        await self._take(PlacementActivities.expire, lapsed, "expire", self._freed)

    async def _place(self) -> None:
        """Reserve, bind, start: in one step if it can be, else for slots that have come so far."""
        if self._state.held_by is not None or self._state.releasing is not None:
            return
        if await self._reserve():
            return
        staying = [slot for slot in self._board.slots.values() if slot.leave is None]
        reserved = [s for s in staying if s.phase is Phase.RESERVED and not s.lapsed]
        bound = [slot for slot in staying if slot.phase is Phase.BOUND]
        await self._start(reserved, bound)

    async def _reserve(self) -> bool:
        """Whether the step went on to bind and start what it reserved."""
        state, now = self._state, workflow.now()
        due = [slot for slot in self._board.in_phase(Phase.WAITING) if _is_due(slot, now)]
        if not due or (state.next_retry_at is not None and now < state.next_retry_at):
            return False
        state.notice_wait(now)
        whole = None if len(due) > TOGETHER_AT_MOST else state.progress_when_placed(due, now)
        go_on = whole and GoOn(progress=whole, passing=_COMING_UP[state.spec.kind])
        step = PlaceStep(
            share=self._state.share,
            spec=state.spec_to_place,
            slots=tuple(slot.slot for slot in due),
            first_attempt=state.next_attempt,
            tries=state.tries,
            standing=self._board.standing(),
            crashes=tuple(crash for slot in due for crash in slot.crashed_on),
            go_on=go_on,
        )
        placed = await self._step(PlacementActivities.place, step, _slots("place", due))
        if placed is _UNREACHABLE:
            return False
        now = workflow.now()
        state.next_attempt = placed.next_attempt
        state.look_again |= bool(placed.taken) or placed.replayed
        for claim in placed.claims:
            self._board.reserved(claim, now)
        state.pending = placed.pending
        state.tries = 0 if placed.pending is None else state.tries + 1
        state.next_retry_at = (
            None if placed.pending is None else now + _seconds(placed.retry_after_seconds)
        )
        if placed.started is None or go_on is None:
            return False
        self._take_up(placed.started, go_on.row_after(placed))
        return True

    async def _start(self, reserved: Sequence[SlotState], bound: Sequence[SlotState]) -> None:
        """Binds what is reserved and starts it; often it serves before the answer comes."""
        state, slots = self._state, [*reserved, *bound]
        if not slots:
            return
        state.notice_wait(workflow.now())
        progress = state.progress(workflow.now())
        step = StartStep(
            share=state.share,
            claims=tuple(slot.claim for slot in slots),
            why="start the slot",
            to_bind=tuple(slot.slot for slot in reserved),
            progress=None if progress == state.told else progress,
            passing=_COMING_UP[state.spec.kind],
        )
        answer = await self._step(PlacementActivities.start, step, _slots("start", slots))
        if answer is _UNREACHABLE:
            return
        self._take_up(answer, progress)

    def _take_up(self, started: Started, written: Progress) -> None:
        """What was bound and started, how far it came, and its row in the queue as written."""
        state, now = self._state, workflow.now()
        state.told = written
        for number in started.bound:
            self._board.bound(number, started.version, now)
        self._believe(started, "start", self._started)
        if started.seen is not None:
            state.look_again |= self._board.see(started.seen, now, state.spec)

    def _started(self, number: int, version: int, now: datetime) -> None:
        self._board.started(number, version, now, self._state.spec)

    def _freed(self, number: int, version: int, now: datetime) -> None:
        self._board.freed(number, now, self._state.spec)

    def _has_lapsed(self, slot: SlotState) -> bool:
        """Its lease ran out: by the authority's word, or by the hour while a hold keeps it."""
        late = slot.lease_expires_at is not None and slot.lease_expires_at <= workflow.now()
        return slot.lapsed or (late and self._state.held_by is not None)

    def _notice_deadlines(self) -> None:
        now = workflow.now()
        for slot in self._board.in_phase(Phase.STARTING, Phase.RUNNING):
            if slot.deadline is not None and slot.deadline <= now and slot.leave is None:
                waited = "start" if slot.phase is Phase.STARTING else "become ready"
                self._board.crashed(slot, now)
                slot.leave = Leave.AGAIN
                slot.evidence = f"did not {waited} on {slot.node} in time"

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def _free(self, slots: Sequence[SlotState], cause: ReleaseCause) -> None:
        await self._take(PlacementActivities.release, slots, "release", self._freed, cause)

    async def _take(
        self,
        activity: Callable[[Any, ClaimsStep], Awaitable[Stepped]],
        slots: Sequence[SlotState],
        verb: str,
        taken: Callable[[int, int, datetime], None],
        cause: ReleaseCause = ReleaseCause.WITHDRAWN,
    ) -> None:
        """Takes one step for these slots, and believes the authority about each of them."""
        if not slots:
            return
        ends = verb in ("stop", "release")
        step = ClaimsStep(
            share=self._state.share,
            claims=tuple(slot.claim for slot in slots),
            why=f"{verb} the slot",
            reasons={s.slot: s.evidence[:500] for s in slots if s.evidence} if ends else {},
            cause=cause,
        )
        answer = await self._step(activity, step, _slots(verb, slots))
        if answer is not _UNREACHABLE:
            self._believe(answer, verb, taken)

    def _believe(
        self, answer: Stepped, verb: str, taken: Callable[[int, int, datetime], None]
    ) -> None:
        for number in answer.taken:
            taken(number, answer.version, workflow.now())
        for refused in answer.refused:
            slot = self._board.slots[refused.slot]
            slot.ordinal += 1
            if slot.leave is None:  # else why it leaves is what people want to know
                slot.evidence = refused.refusal.sentence
            self._refused(slot, refused.refusal.code, verb)

    def _refused(self, slot: SlotState, code: RefusalCode, verb: str) -> None:
        now = workflow.now()
        if verb == "expire":
            slot.lapsed, slot.lease_expires_at = False, now + timeouts.LOOK_AGAIN
        if code is RefusalCode.LEASE_EXPIRED:
            slot.lapsed = True
        elif code is RefusalCode.STILL_RUNNING:
            # Its node is back, or was never gone: wait for what it reports.
            slot.deadline = now + timeouts.UNKNOWN_TIMEOUT
        elif code is RefusalCode.STOP_REQUESTED or (
            verb == "start" and slot.phase is Phase.RESERVED
        ):
            slot.leave = slot.leave or Leave.AGAIN
        elif code is not RefusalCode.LEASE_STANDS and not self._state.look_again:
            # Once for all that is refused until then, or each refusal would put it off.
            self._state.look_again = True
            self._state.look_again_at = now + timeouts.LOOK_AGAIN

    async def _step(
        self, activity: Callable[[Any, Any], Awaitable[T]], argument: object, summary: str
    ) -> T:
        """One idempotent local activity; while the authority is away, a visible wait instead."""
        try:
            return await run_step(activity, argument, summary)
        except STEP_FAILURES as error:
            self._state.pending = Pending.because(AWAY, Unreachable(error=said_by(error)[:500]))
            self._state.next_retry_at = workflow.now() + timeouts.UNREACHABLE_RETRY
            return _UNREACHABLE

    # ── telling ─────────────────────────────────────────────────────────────────────────────────

    async def _write_progress(self) -> bool:
        """Whether the region's queue now says what this placement is."""
        self._state.notice_wait(workflow.now())
        progress = self._state.progress(workflow.now())
        if progress == self._state.told:
            return True
        written = await self._step(PlacementActivities.enqueue, progress, "write the queue")
        if written is _UNREACHABLE:
            return False
        self._state.told = progress
        return True

    async def _tell(self) -> None:
        await self._write_progress()
        workflow.set_current_details(placement_details(self._state.status()))
        pending = self._state.reason
        shown = (self._state.coarse_phase, None if pending is None else pending.code.value)
        if shown == self._shown:
            return
        self._shown = shown
        reason = search_attributes.PENDING_REASON
        workflow.upsert_search_attributes(  # pyright: ignore[reportUnknownMemberType]
            [
                search_attributes.PHASE.value_set(shown[0]),
                reason.value_unset() if shown[1] is None else reason.value_set(shown[1]),
            ]
        )

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
        if state.look_again:
            moments.append(state.look_again_at or now)
        # What was refused is asked again when it is known what stands, not until then.
        due = state.look_again_at or now
        for slot in self._board.slots.values():
            if slot.is_due(is_held=state.held_by is not None):
                moments.append(due)
            elif slot.phase is not Phase.WAITING:
                moments += [slot.deadline, slot.lease_expires_at]
            elif state.held_by is None:
                moments.append(max(filter(None, (slot.retry_at, state.next_retry_at)), default=now))
        return min((moment for moment in moments if moment is not None), default=None)

    def _must_continue(self) -> bool:
        full = (
            workflow.info().is_continue_as_new_suggested()
            or self._inbox.in_this_run >= timeouts.MESSAGES_PER_RUN
        )
        # Nothing may be on its way: a message or a handler left behind would be lost.
        return full and not self._inbox and workflow.all_handlers_finished()

    def _is_over(self) -> bool:
        return self._state.is_over and not self._inbox and workflow.all_handlers_finished()

    async def _end(self) -> Ended:
        ended, share = self._state.ended(), self._state.share
        owner = workflow.get_external_workflow_handle(workload_id(share.tenant, share.workload))
        try:
            await owner.signal("ended", ended)
        except FailureError:
            workflow.logger.info("the workload has ended before its placement")
        return ended


_UNREACHABLE: Any = object()
_NO_REASON: str | None = None

# A job has arrived when it runs.
_COMING_UP = {
    WorkloadKind.JOB: (BindingState.BOUND, BindingState.STARTING),
    WorkloadKind.SERVICE: COMING_UP,
}


def _is_due(slot: SlotState, now: datetime) -> bool:
    return slot.leave is None and (slot.retry_at is None or slot.retry_at <= now)


def _slots(verb: str, slots: Iterable[SlotState]) -> str:
    return f"{verb} {_numbers(slots)}"


def _numbers(slots: Iterable[SlotState]) -> str:
    numbers = [slot.slot for slot in slots]
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"slot {', '.join(map(str, numbers[:5]))}{more}"


def _seconds(count: float) -> timedelta:
    return timedelta(seconds=count)
