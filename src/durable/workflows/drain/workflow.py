"""Empties nodes: cordons them, has their replicas replaced elsewhere, and says what keeps them.

The workloads replace their own replicas, within their disruption allowances and as slowly as these
demand; the drain marks what has to go, looks what is left, and ends when nothing is, when somebody
cancels it, or at its deadline. All that it knows is in its region's row, so that one that was
terminated goes on where it was.
"""

from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.drain import DrainActivities
    from durable.activities.drain_steps import EndStep
    from durable.activities.placement import PlacementActivities
    from durable.model.fleet.drain import DrainOrder, DrainProgress, DrainState
    from durable.model.operators.rights import Scope
    from durable.model.refusal import RefusalCode
    from durable.signals import drains, payloads, search_attributes
    from durable.signals.drains import DrainStatus
    from durable.signals.names import DRAIN
    from durable.signals.registry import messages_to
    from durable.validation.text import counted
    from durable.workflows import timeouts
    from durable.workflows.authorization import refuse_unauthorized
    from durable.workflows.drain.state import NO_TARGET, DrainMemory, DrainStart, Ending, start_of
    from durable.workflows.failures import refusal
    from durable.workflows.handlers import Receives, accepts
    from durable.workflows.inbox import Inbox
    from durable.workflows.pages import drain_page
    from durable.workflows.starts import NO_INPUT, start_or_refusal
    from durable.workflows.steps import (
        UNREACHABLE,
        Activity,
        ask_step,
        audit_messages,
        try_step,
    )

T = TypeVar("T")

MESSAGES = messages_to(DRAIN)
BLOCKED_SHOWN = 3


@workflow.defn(name=DRAIN)
@accepts(MESSAGES)
class Drain(Receives):
    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        start, self._wrong_start = start_or_refusal(lambda: start_of(raw), DrainStart(NO_TARGET))
        self._target = start.target
        self._memory = start.memory or DrainMemory()
        self._inbox = Inbox(MESSAGES, self._memory.messages)
        self._shown: tuple[str, str | None] = (DrainState.DRAINING.value, None)

    @workflow.run
    async def run(self, raw: RawValue = NO_INPUT) -> DrainStatus:
        if self._wrong_start is not None:
            raise self._wrong_start
        await self._recall()
        if not await self._was_asked():
            return self.status()
        while True:
            await self._read_messages()
            await audit_messages(self._memory.messages, PlacementActivities.audit)
            await self._mark()
            await self._observe()
            await self._finish()
            self._report()
            if self._memory.is_over or self._inbox.is_full():
                await self._inbox.let_handlers_finish()
            if self._has_ended():
                return self.status()
            if self._must_continue():
                workflow.continue_as_new(DrainStart(self._target, self._memory))
            await self._inbox.rest(*self._next_wake())

    # ── beginning ───────────────────────────────────────────────────────────────────────────────

    async def _recall(self) -> None:
        """Goes on with a drain that the region knows, whoever was terminated over it."""
        while self._memory.drain is None:
            found = await self._step(DrainActivities.recall_drain, self._target, "read the drain")
            if found is not UNREACHABLE:
                self._memory.drain = found
                return
            self._report()
            if self._must_continue():
                workflow.continue_as_new(DrainStart(self._target, self._memory))
            await workflow.sleep(timeouts.UNREACHABLE_RETRY, summary="waits: the region answers")

    async def _was_asked(self) -> bool:
        """Whether there is anything to do; one whose first order was refused ends here."""
        deadline = workflow.now() + timeouts.FIRST_APPLY
        refusals = self._memory.messages.rejected_count
        while self._memory.drain is None and workflow.now() < deadline:
            self._report()
            try:
                await workflow.wait_condition(
                    self._inbox.__bool__,
                    timeout=deadline - workflow.now(),
                    timeout_summary="waits: somebody sends `drain`",
                )
            except TimeoutError:
                break
            await self._read_messages()
            if self._memory.messages.rejected_count > refusals:
                break
        if self._memory.drain is not None:
            return True
        return await self._settle_refusal()

    async def _settle_refusal(self) -> bool:
        """Answers and audits what came until now; an order that comes meanwhile still counts."""
        while True:
            # First: whoever is answered waits for the audit.
            await audit_messages(self._memory.messages, PlacementActivities.audit)
            await self._inbox.let_handlers_finish()
            await self._read_messages()
            await audit_messages(self._memory.messages, PlacementActivities.audit)
            if self._memory.drain is not None:
                return True
            if self._inbox.is_idle and not self._memory.messages.unaudited:
                return False
            if self._must_continue():
                workflow.continue_as_new(DrainStart(self._target, self._memory))
            if self._inbox.is_idle:
                await workflow.sleep(timeouts.AUDIT_RETRY, summary="waits: the audit")

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @workflow.query(name="status", description="What is left to move, and what keeps it.")
    def status(self) -> DrainStatus:
        return self._memory.status(self._target)

    async def _read_messages(self) -> None:
        while (envelope := self._inbox.next()) is not None:
            handle: Any = getattr(self, f"on_{envelope.message.name}")
            try:
                scope = Scope(region=self._target.region)
                await refuse_unauthorized(envelope, scope, self._memory.messages)
                if envelope.repeats is not None:
                    self._inbox.repeat(envelope)
                else:
                    self._inbox.accept(envelope, await handle(envelope.payload))
            except ApplicationError as refused:
                self._inbox.refuse(envelope, refused)

    async def on_drain(self, order: drains.DrainNodes) -> str:
        """Cordons the nodes; under a request id that is known, answers what became of it."""
        asked = DrainOrder(
            target=self._target,
            request=order.request_id,
            actor=order.actor,
            reason=order.reason,
            deadline=order.deadline,
            wait_for_jobs=order.wait_for_jobs,
        )
        summary, region = f"cordon {self._target}", self._target.region
        drain = await ask_step(DrainActivities.cordon, asked, summary, region)
        self._memory.drain = self._memory.drain or drain
        nodes = counted(len(drain.nodes), "node")
        if drain.state is not DrainState.DRAINING:
            return f"It has ended: {drain.outcome}"
        return (
            f"Draining {nodes} with {counted(drain.replicas, 'replica')}, until "
            f"{drain.deadline_at:%Y-%m-%d %H:%M:%S}Z."
        )

    async def on_cancel(self, cancel: drains.CancelDrain) -> str:
        memory = self._memory
        if memory.drain is None:
            raise refusal(RefusalCode.UNKNOWN_DRAIN, "Nothing is drained here yet.")
        if memory.is_over:
            raise refusal(
                RefusalCode.UNKNOWN_DRAIN, f"The drain has ended before: {memory.drain.outcome}"
            )
        outcome = f"cancelled by {cancel.actor}: {cancel.reason}"
        memory.ending = Ending(DrainState.CANCELLED, outcome[:500], cancel.actor)
        await self._finish()
        if not memory.is_over:
            return "Cancelling, as soon as its region answers: nothing more is replaced until then."
        return "Cancelled: what has not left stays, and nodes that it cordoned take work again."

    async def on_look(self, look: payloads.Look) -> str:
        """A hint: what changed is read from the region."""
        return "Looking."

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def _mark(self) -> None:
        """Again and again: what came there by other ways has to go, too."""
        memory = self._memory
        if memory.drain is None or memory.is_over or memory.ending is not None:
            return
        await self._step(DrainActivities.mark, memory.drain, "mark what runs there")

    async def _observe(self) -> None:
        """Looks what is left; the region's own clock says whether the deadline has passed."""
        memory = self._memory
        if memory.drain is None or memory.is_over or memory.ending is not None:
            return
        progress = await self._step(DrainActivities.observe, memory.drain, "look what is left")
        if progress is UNREACHABLE:
            return
        memory.tries = memory.tries + 1 if progress == memory.progress else 0
        memory.progress = progress
        if progress.left == 0:
            replicas = counted(memory.drain.replicas, "replica")
            outcome = f"nothing is left of {replicas}; still cordoned"
            memory.ending = Ending(DrainState.DRAINED, outcome)
        elif progress.is_overdue:
            memory.ending = Ending(DrainState.GAVE_UP, _gave_up(progress))

    async def _finish(self) -> None:
        """Records the end in the region, however long that does not answer."""
        memory = self._memory
        if memory.drain is None or memory.is_over or memory.ending is None:
            return
        ending = memory.ending
        step = EndStep(
            drain=memory.drain, state=ending.state, actor=ending.actor, outcome=ending.outcome
        )
        ended = await self._step(DrainActivities.finish, step, f"end: {ending.state}")
        if ended is not UNREACHABLE:
            memory.drain = ended

    async def _step(self, activity: Activity[T], argument: object, summary: str) -> T:
        return await try_step(self._memory, activity, argument, summary)

    # ── reporting, resting, ending ──────────────────────────────────────────────────────────────

    def _report(self) -> None:
        status = self.status()
        workflow.set_current_details(drain_page(status, self._inbox.fresh_request_id()))
        progress = status.progress
        blocked = None if progress is None else next(iter(progress.blocked), None)
        shown = (status.state.value, None if blocked is None else blocked.code.value)
        if shown == self._shown:
            return
        self._shown = shown
        pending = search_attributes.PENDING_REASON
        workflow.upsert_search_attributes(  # pyright: ignore[reportUnknownMemberType]
            [
                search_attributes.PHASE.value_set(shown[0]),
                pending.value_unset() if shown[1] is None else pending.value_set(shown[1]),
            ]
        )

    def _next_wake(self) -> tuple[timedelta, str]:
        memory = self._memory
        if memory.is_over:
            return timeouts.AUDIT_RETRY, "the audit"
        if memory.unreachable:
            return timeouts.UNREACHABLE_RETRY, memory.unreachable
        longest = timeouts.DRAIN_LONGEST
        wait = min(longest, timeouts.DRAIN_FIRST * 2 ** min(memory.tries, 6))
        if memory.drain is not None:
            # The region's clock decides; this only says when it is worth asking.
            until = memory.drain.deadline_at - workflow.now()
            wait = min(wait, max(until, timeouts.SHORTEST_REST))
        progress = memory.progress
        return wait, (progress and progress.waits_for) or "replicas to leave"

    def _has_ended(self) -> bool:
        memory = self._memory
        return memory.is_over and self._inbox.is_idle and not memory.messages.unaudited

    def _must_continue(self) -> bool:
        return self._inbox.is_full() and self._inbox.is_idle


def _gave_up(progress: DrainProgress) -> str:
    shown = "; ".join(map(str, progress.workloads[:BLOCKED_SHOWN]))
    were = "was" if progress.left == 1 else "were"
    return (
        f"{counted(progress.left, 'replica')} {were} left there at the deadline; still cordoned. "
        f"{shown}"
    )[:500]
