"""An override: proposed, approved where its kind demands it, in force, and ended by itself.

The authority decides each step and its clock decides each moment; the workflow waits, has regions
obey, and shows what is so. All that it knows is in the authority's row, so that one that was
terminated goes on where it was. Started with a proposal as its input, it is proposed by that.
"""

from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeUpdate
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.override import OverrideActivities
    from durable.activities.override_steps import ChangeStep, ProposeStep, Seen
    from durable.activities.workload import WorkloadActivities
    from durable.model.ids import OverrideId
    from durable.model.refusal import Refusal, RefusalCode
    from durable.signals import overrides, payloads, search_attributes
    from durable.signals.names import OVERRIDE
    from durable.signals.overrides import OverrideStatus
    from durable.signals.registry import messages_to
    from durable.workflows import timeouts
    from durable.workflows.failures import refusal
    from durable.workflows.handlers import Receives, accepts
    from durable.workflows.inbox import Envelope, Inbox
    from durable.workflows.override.answers import answer_of
    from durable.workflows.override.page import override_page
    from durable.workflows.override.state import (
        PREFIX,
        OverrideMemory,
        OverrideStart,
        proposal_of,
        start_of,
    )
    from durable.workflows.starts import NO_INPUT
    from durable.workflows.steps import (
        UNREACHABLE,
        Activity,
        ask_step,
        audit_messages,
        try_step,
    )

T = TypeVar("T")

MESSAGES = messages_to(OVERRIDE)
PROPOSE = next(message for message in MESSAGES if message.name == "propose")


@workflow.defn(name=OVERRIDE)
@accepts(MESSAGES)
class Override(Receives):
    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        start = start_of(raw)
        self._memory = OverrideMemory() if start is None else start.memory
        self._inbox = Inbox(MESSAGES, self._memory.messages)
        self._input: RawValue | None = raw if start is None else proposal_of(start)
        self._proposal: Envelope | None = None
        self._shown = ""

    @workflow.run
    async def run(self, raw: RawValue = NO_INPUT) -> OverrideStatus:
        self._open_input()
        await self._recall()
        await self._take_input()
        if not await self._was_proposed():
            refused = self._memory.refused
            if refused is not None:
                raise refusal(refused.code, refused.sentence)
            return self.status()
        while True:
            await self._read_messages()
            await audit_messages(self._memory.messages, WorkloadActivities.audit)
            await self._expire()
            await self._spread()
            self._report()
            if self._memory.is_over or self._inbox.is_full():
                await self._inbox.let_handlers_finish()
            if self._has_ended():
                return self.status()
            if self._must_continue():
                self._continue()
            await self._inbox.rest(*self._next_wake())

    def _continue(self) -> NoReturn:
        # What could be read as a proposal is JSON.
        left = None if self._proposal is None else self._input
        proposal = None if left is None else left.payload.data.decode()
        workflow.continue_as_new(OverrideStart(self._memory, proposal))

    @property
    def _id(self) -> OverrideId:
        """From the workflow's own id, which whoever starts it chooses."""
        name = workflow.info().workflow_id
        try:
            return OverrideId(name.removeprefix(PREFIX) if name.startswith(PREFIX) else "")
        except ValueError:
            sentence = (
                f"{name[:100]} is not a valid override name; start it as {PREFIX}NAME, where "
                f"NAME is {OverrideId.allowed}."
            )
            raise refusal(RefusalCode.INVALID, sentence) from None

    # ── beginning ───────────────────────────────────────────────────────────────────────────────

    async def _recall(self) -> None:
        """Goes on with an override that the authority knows, whoever was terminated over it."""
        try:
            known = self._id
        except ApplicationError:
            return  # nothing can be proposed under this name
        while self._memory.override is None:
            seen = await self._step(OverrideActivities.recall_override, known, "read the override")
            if seen is not UNREACHABLE:
                self._memory.see(seen, workflow.now())
                return
            self._report()
            if self._must_continue():
                self._continue()
            await workflow.sleep(timeouts.UNREACHABLE_RETRY, summary="waits: the authority answers")

    def _open_input(self) -> None:
        """What it was started with is its proposal, if it can be read as one."""
        if self._input is None:
            return
        try:
            self._proposal = self._inbox.open(PROPOSE, self._input)
        except ApplicationError as refused:
            self._memory.refused = _as_refusal(refused)

    async def _take_input(self) -> None:
        """Sent again, a proposal is answered as it was."""
        envelope, self._proposal = self._proposal, None
        if envelope is None:
            return
        await self._handle(envelope)
        if self._memory.override is None and envelope.refused is not None:
            self._memory.refused = _as_refusal(envelope.refused)

    async def _was_proposed(self) -> bool:
        """Whether there is anything to do; one whose proposal was refused ends here."""
        deadline = workflow.now() + timeouts.FIRST_APPLY
        refusals = self._memory.messages.rejected_count if self._memory.refused is None else -1
        while self._memory.override is None and workflow.now() < deadline:
            if self._memory.messages.rejected_count > refusals:
                break
            self._report()
            try:
                await workflow.wait_condition(
                    self._inbox.__bool__,
                    timeout=deadline - workflow.now(),
                    timeout_summary="waits: somebody sends `propose`",
                )
            except TimeoutError:
                break
            await self._read_messages()
        if self._memory.override is not None:
            return True
        return await self._settle_refusal()

    async def _settle_refusal(self) -> bool:
        """Answers and audits what came until now; a proposal that comes meanwhile still counts."""
        while True:
            # First: whoever is answered waits for the audit.
            await audit_messages(self._memory.messages, WorkloadActivities.audit)
            await self._inbox.let_handlers_finish()
            await self._read_messages()
            await audit_messages(self._memory.messages, WorkloadActivities.audit)
            if self._memory.override is not None:
                return True
            if self._inbox.is_idle and not self._memory.messages.unaudited:
                return False
            if self._must_continue():
                self._continue()
            if self._inbox.is_idle:
                await workflow.sleep(timeouts.AUDIT_RETRY, summary="waits: the audit")

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @workflow.query(name="status", description="What it does, until when, and where.")
    def status(self) -> OverrideStatus:
        return self._memory.status()

    async def _read_messages(self) -> None:
        while (envelope := self._inbox.next()) is not None:
            await self._handle(envelope)

    async def _handle(self, envelope: Envelope) -> None:
        handle: Any = getattr(self, f"on_{envelope.message.name}")
        try:
            self._inbox.accept(envelope, await handle(envelope.payload, envelope))
        except ApplicationError as refused:
            self._inbox.refuse(envelope, refused)

    async def on_propose(self, proposal: overrides.ProposeOverride, envelope: Envelope) -> str:
        asked = envelope.request_message
        assert asked is not None, "a person's message"
        step = ProposeStep(id=self._id, proposal=proposal, asked=asked, digest=envelope.digest)
        summary = f"propose {proposal.kind}"
        return await self._ask(OverrideActivities.propose_override, step, summary)

    async def on_approve(self, approve: overrides.ApproveOverride, envelope: Envelope) -> str:
        return await self._change(envelope)

    async def on_reject(self, reject: overrides.RejectOverride, envelope: Envelope) -> str:
        return await self._change(envelope)

    async def on_revoke(self, revoke: overrides.RevokeOverride, envelope: Envelope) -> str:
        return await self._change(envelope)

    async def on_extend(self, extend: overrides.ExtendOverride, envelope: Envelope) -> str:
        return await self._change(envelope, extend.by)

    async def on_look(self, look: payloads.Look, envelope: Envelope) -> str:
        """A hint: what changed is read from the authority."""
        seen = await self._step(OverrideActivities.recall_override, self._id, "read the override")
        if seen is not UNREACHABLE:
            self._memory.see(seen, workflow.now())
        return "Looking."

    async def _change(self, envelope: Envelope, by: timedelta | None = None) -> str:
        asked = envelope.request_message
        assert asked is not None, "a person's message"
        name = envelope.message.name
        step = ChangeStep(id=self._id, change=name, by=by, asked=asked, digest=envelope.digest)
        return await self._ask(OverrideActivities.change_override, step, f"{name} by {asked.actor}")

    async def _ask(self, activity: Activity[Seen], step: object, summary: str) -> str:
        """Has the authority decide, and regions obey before the sender is answered."""
        seen = await ask_step(activity, step, summary)
        self._memory.see(seen, workflow.now())
        await self._spread()
        return answer_of(seen.answer, self._memory)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def _expire(self) -> None:
        """Ends it when its time is over by the authority's clock, which is asked then."""
        memory, override = self._memory, self._memory.override
        if override is None or override.has_ended:
            return
        if memory.time_there(workflow.now()) < override.expires_at:
            return
        seen = await self._step(OverrideActivities.expire_override, override.id, "end it in time")
        if seen is not UNREACHABLE:
            memory.see(seen, workflow.now())

    async def _spread(self) -> None:
        """Has regions obey it as it is now; also those that could not be asked before."""
        memory, now = self._memory, workflow.now()
        if memory.override is None:
            return
        is_fresh = memory.spread_at is not None and (
            memory.override.has_ended or now < memory.spread_at + timeouts.OVERRIDE_RESYNC
        )
        if memory.is_spread and is_fresh:
            return
        name = f"have regions obey it: {memory.override.state}"
        spread = await self._step(OverrideActivities.spread_override, self._id, name)
        if spread is not UNREACHABLE:
            memory.spread, memory.spread_at = spread, now

    async def _step(self, activity: Activity[T], argument: object, summary: str) -> T:
        return await try_step(self._memory, activity, argument, summary)

    # ── reporting, resting, ending ──────────────────────────────────────────────────────────────

    def _report(self) -> None:
        status = self.status()
        now = self._memory.time_there(workflow.now())
        workflow.set_current_details(override_page(status, now, self._inbox.fresh_request_id()))
        if status.state == self._shown:
            return
        self._shown = status.state
        updates: list[SearchAttributeUpdate[Any]] = [
            search_attributes.PHASE.value_set(status.state)
        ]
        scope = None if status.override is None else status.override.scope
        for key, name in (
            (search_attributes.TENANT, scope and scope.tenant),
            (search_attributes.WORKLOAD, scope and scope.workload),
            (search_attributes.REGION, scope and scope.region),
        ):
            if name is not None:
                updates.append(key.value_set(str(name)))
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]

    def _next_wake(self) -> tuple[timedelta, str]:
        memory = self._memory
        if memory.unreachable:
            return timeouts.UNREACHABLE_RETRY, memory.unreachable
        if memory.spread is not None and memory.spread.missing:
            away = ", ".join(memory.spread.missing)
            return timeouts.REGION_RETRY, f"{away} could not be reached"
        if memory.messages.unaudited or memory.override is None or memory.override.has_ended:
            return timeouts.AUDIT_RETRY, "the audit"
        # The authority's clock decides; this only says when it is worth asking.
        left = memory.override.expires_at - memory.time_there(workflow.now())
        wait = max(min(left, timeouts.OVERRIDE_RESYNC), timeouts.SHORTEST_REST)
        return wait, f"its end at {memory.override.expires_at:%Y-%m-%d %H:%M:%S}Z"

    def _has_ended(self) -> bool:
        return self._memory.is_over and self._inbox.is_idle and not self._memory.messages.unaudited

    def _must_continue(self) -> bool:
        return self._inbox.is_full() and self._inbox.is_idle


def _as_refusal(refused: ApplicationError) -> Refusal:
    return Refusal(code=RefusalCode(refused.details[0]), sentence=refused.message[:500])
