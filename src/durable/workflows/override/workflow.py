"""An override: proposed, approved where its kind demands it, in force, and ended by itself.

The authority decides each step and its clock decides each moment; the workflow waits, has regions
obey, and shows what is so. Started with a proposal as its input, it is proposed by that.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue, SearchAttributeKey
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.activities.override import OverrideActivities, OverrideReading, Spread
    from durable.model.ids import OverrideId
    from durable.model.overrides.override import Override
    from durable.model.refusal import Refusal, RefusalCode
    from durable.model.time_left import TimeLeft
    from durable.reports.describe import describe
    from durable.signals import overrides, search_attributes
    from durable.signals.names import OVERRIDE, override_of
    from durable.signals.overrides import OverrideStatus
    from durable.signals.payloads import Look
    from durable.signals.registry import messages_to
    from durable.validation.text import show_moment
    from durable.workflows import timeouts
    from durable.workflows.continued import continued
    from durable.workflows.failures import refusal
    from durable.workflows.handlers import accepts
    from durable.workflows.inbox import Envelope
    from durable.workflows.orders import Memory, OrderWorkflow
    from durable.workflows.starts import NO_INPUT
    from durable.workflows.steps import UNREACHABLE, Activity

PROPOSE = next(message for message in messages_to(OVERRIDE) if message.name == "propose")


@dataclass
class OverrideMemory(Memory):
    override: Override | None = None
    # What it was started with, if that can be read as a proposal and was not taken yet.
    proposal: str | None = None
    # Why what it was started with is no proposal, or was refused.
    refused: Refusal | None = None
    # By how much the authority's clock is ahead of the workflow's.
    clock_ahead_seconds: float = 0.0
    spread: Spread | None = None
    spread_at: datetime | None = None

    def see(self, reading: OverrideReading, now: datetime) -> None:
        self.override = reading.override or self.override
        self.clock_ahead_seconds = (reading.now - now).total_seconds()

    def time_there(self, now: datetime) -> datetime:
        """The authority's time, as far as it is known here."""
        return now + timedelta(seconds=self.clock_ahead_seconds)

    @property
    def is_spread(self) -> bool:
        """Whether every region obeys it as it is now."""
        override, spread = self.override, self.spread
        if override is None or spread is None:
            return False
        return spread.number >= override.number and not spread.unreachable


@workflow.defn(name=OVERRIDE)
@accepts(messages_to(OVERRIDE))
class OverrideWorkflow(OrderWorkflow[OverrideId, OverrideMemory]):
    memory = OverrideMemory
    first_order = "a person sends `propose`"

    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        super().__init__(raw)
        is_first = continued(raw) is None
        self._proposal = self._open(raw if is_first else self._left())
        if self._wrong_start is not None:
            self._put_proposal()

    def key_of(self, id: str) -> OverrideId:
        try:
            return override_of(id)
        except ValueError:
            sentence = (
                f"{id[:100]} is not a valid override name; start it as override/NAME, where "
                f"NAME is {OverrideId.allowed}."
            )
            raise refusal(RefusalCode.INVALID, sentence) from None

    def _left(self) -> RawValue | None:
        """What the first run was started with, if no run has taken it yet."""
        if self._memory.proposal is None:
            return None
        data = self._memory.proposal.encode()
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=data))

    def _open(self, raw: RawValue | None) -> Envelope[Any] | None:
        """What it was started with is its proposal, if it can be read as one."""
        if raw is None:
            return None
        try:
            envelope = self._inbox.open(PROPOSE, raw)
        except ApplicationError as refused:
            self._memory.refused = _as_refusal(refused)
            return None
        self._memory.proposal = raw.payload.data.decode()
        return envelope

    async def recall(self) -> bool:
        if not await self._read():
            return False
        self._put_proposal()
        return True

    def _put_proposal(self) -> None:
        """Not before the authority was read: a run with messages in its inbox cannot continue."""
        if self._proposal is not None and self._memory.proposal is not None:
            self._memory.proposal = None
            self._inbox.put_first(self._proposal)

    async def _read(self) -> bool:
        reading = await self.step(
            OverrideActivities.recall_override, self._key, "read the override"
        )
        if reading is UNREACHABLE:
            return False
        self._memory.see(reading, workflow.now())
        return True

    @property
    def is_ordered(self) -> bool:
        return self._memory.override is not None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, and every region knows."""
        override = self._memory.override
        return override is not None and override.has_ended and self._memory.is_spread

    def end(self) -> OverrideStatus:
        refused = self._memory.refused
        if self._memory.override is None and refused is not None:
            raise refusal(refused.code, refused.sentence)
        return self.status()

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @workflow.query(name="status", description="What it does, until when, and where.")
    def status(self) -> OverrideStatus:
        memory, spread = self._memory, self._memory.spread
        return OverrideStatus(
            override=memory.override,
            regions=() if spread is None else spread.regions,
            unreachable_regions={} if spread is None else spread.unreachable,
            **memory.shown(),
        )

    async def on_propose(self, envelope: Envelope[overrides.ProposeOverride]) -> str:
        try:
            return await self._ask(OverrideActivities.propose_override, envelope)
        except ApplicationError as refused:
            if envelope is self._proposal:
                self._memory.refused = _as_refusal(refused)
            raise

    async def _change(self, envelope: Envelope[Any]) -> str:
        return await self._ask(OverrideActivities.change_override, envelope)

    on_approve = on_reject = on_revoke = on_extend = _change

    async def on_look(self, envelope: Envelope[Look]) -> str:
        await self._read()
        return "Looking."

    async def _ask(self, activity: Activity[OverrideReading], envelope: Envelope[Any]) -> str:
        """Has the authority decide, and regions obey before the sender is answered."""
        summary = f"{envelope.message.name} by {envelope.payload.actor}"
        reading = await self.ask(activity, envelope.request_message, summary)
        self._memory.see(reading, workflow.now())
        await self._spread()
        return answer_of(reading.answer, self._memory)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def advance(self) -> None:
        await self._expire()
        await self._spread()

    async def _expire(self) -> None:
        """Ends it when its time is over by the authority's clock, which is asked then."""
        memory, override = self._memory, self._memory.override
        if override is None or override.has_ended:
            return
        if memory.time_there(workflow.now()) < override.expires_at:
            return
        reading = await self.step(OverrideActivities.expire_override, override.id, "end it in time")
        if reading is not UNREACHABLE:
            memory.see(reading, workflow.now())

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
        spread = await self.step(OverrideActivities.spread_override, self._key, name)
        if spread is not UNREACHABLE:
            memory.spread, memory.spread_at = spread, now

    # ── reporting, resting ──────────────────────────────────────────────────────────────────────

    def page(self, request_id: str) -> str:
        now = self._memory.time_there(workflow.now())
        return describe(self.status(), now).as_markdown(request_id)

    def attributes(self) -> dict[SearchAttributeKey[str], str | None]:
        status = self.status()
        scope = None if status.override is None else status.override.scope
        named = {
            search_attributes.TENANT: scope and scope.tenant,
            search_attributes.WORKLOAD: scope and scope.workload,
            search_attributes.REGION: scope and scope.region,
        }
        return {
            search_attributes.PHASE: status.state,
            **{key: str(name) for key, name in named.items() if name is not None},
        }

    def rest(self) -> tuple[timedelta, str]:
        memory, override = self._memory, self._memory.override
        assert override is not None, "there is one to look after"
        if memory.spread is not None and memory.spread.unreachable:
            away = ", ".join(memory.spread.unreachable)
            return timeouts.REGION_RETRY, f"{away} could not be reached"
        left = TimeLeft.of(override.expires_at, memory.time_there(workflow.now()))
        wait = timeouts.rest_for(left, timeouts.OVERRIDE_RESYNC)
        return wait, f"its end at {show_moment(override.expires_at)}"


def answer_of(answer: str, memory: OverrideMemory) -> str:
    """The authority's answer with what regions know of it, so that it promises nothing else."""
    override, spread = memory.override, memory.spread
    if override is None or override.activated_at is None:
        return answer  # no region ever obeyed it
    if memory.is_spread:
        return f"{answer} It no longer has any effect." if override.has_ended else answer
    were_asked = spread is not None and spread.number >= override.number
    away = ", ".join(spread.unreachable) if spread is not None and were_asked else "the regions"
    if override.has_ended:
        return (
            f"{answer} It may still be obeyed in {away} until the news arrives, at the latest "
            f"until {show_moment(override.expires_at)}."
        )
    return f"{answer} Not reached yet, and notified later: {away}."


def _as_refusal(refused: ApplicationError) -> Refusal:
    return Refusal(code=RefusalCode(refused.details[0]), sentence=refused.message)
