"""The life of a workflow that carries a person's order, from the first message to its end.

It remembers its messages and waits. What it looks after is in the authority's rows, so that a run
that was terminated goes on where it was. A subclass says which object that is, how it is read from
the authority, what a message does (`on_<name>`), which steps it takes, and how long it rests.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from durable.model.refusal import RefusalCode
    from durable.reports.describe import describe
    from durable.signals import search_attributes
    from durable.signals.payloads import Look
    from durable.validation.text import shorten
    from durable.workflows import timeouts
    from durable.workflows.attributes import ShownAttributes
    from durable.workflows.continued import continued
    from durable.workflows.failures import (
        STEP_FAILURES,
        fail_if_elsewhere,
        refusal,
        refusal_in,
        sentence_of,
    )
    from durable.workflows.handlers import Receives
    from durable.workflows.inbox import Envelope, Inbox, MessageLog
    from durable.workflows.starts import NO_INPUT, start_or_refusal
    from durable.workflows.steps import UNREACHABLE, Activity, audit_messages, run_step


@dataclass
class Memory:
    """It goes along when the workflow continues as new; a subclass adds what its object needs."""

    # Why the last step could not be taken.
    unreachable: str = ""
    # How often in a row one could not be taken.
    outages: int = 0
    # The authority knows no such object, and never will.
    is_unknown: bool = False
    messages: MessageLog = field(default_factory=MessageLog)

    def shown(self) -> dict[str, Any]:
        """What the status of every kind answers."""
        return {
            "unreachable": self.unreachable,
            "rejected": tuple(self.messages.rejected),
            "rejected_count": self.messages.rejected_count,
        }


K = TypeVar("K")
M = TypeVar("M", bound=Memory)
T = TypeVar("T")


class OrderWorkflow(Receives, Generic[K, M]):
    """One loop for every kind; the methods below it are what a kind gives."""

    # What a run leaves to the next.
    memory: ClassVar[type[Memory]]
    # What it waits for while there is nothing to look after.
    first_order: ClassVar[str] = ""
    # With this refusal of a step there is nothing to look after, ever.
    unknown: ClassVar[RefusalCode | None] = None

    _memory: M

    @workflow.init
    def __init__(self, raw: RawValue = NO_INPUT) -> None:
        left = continued(raw)
        memory: Any = self.memory()
        if left is not None:
            memory = workflow.payload_converter().from_payload(left.payload, self.memory)
        self._memory = memory
        self._inbox = Inbox(self.messages, self._memory.messages)
        # A refusal here would fail the workflow task: `run` raises it.
        no_key: Any = None
        self._key: K
        self._key, self._wrong_start = start_or_refusal(
            lambda: self._read_key(raw, is_first=left is None), no_key
        )
        self._began = workflow.now()
        # Whether a message may have changed what is remembered, and its answer was lost.
        self._is_unsure = False
        self._attributes = ShownAttributes({} if left is None else None)

    def _read_key(self, raw: RawValue, *, is_first: bool) -> K:
        if is_first:
            self.check_start(raw)
        return self.key_of(workflow.info().workflow_id)

    @workflow.run
    async def run(self, raw: RawValue = NO_INPUT) -> Any:
        if self._wrong_start is not None:
            # The senders to an id that names nothing are refused, and the audit knows of it.
            await self._settle_messages(self._wrong_start)
            raise self._wrong_start
        await self._recall()
        while True:
            await self._read_messages()
            await audit_messages(self._memory.messages)
            if self._is_unsure:
                self._is_unsure = not await self.recall()
            if self.is_ordered:
                await self.advance()
            self._report()
            if self._is_over or self._inbox.is_full():
                await self._inbox.let_handlers_finish()
            if self._is_over and self._inbox.is_idle and not self._memory.messages.unaudited:
                return self.end()
            self._continue_if_full()
            await self._inbox.rest(*self._next_wake())
            if not self.is_ordered:
                await self.recall()

    async def _recall(self) -> None:
        """Before any message: what one does depends on what the authority knows."""
        while not await self.recall():
            self._report()
            self._continue_if_full()
            wait = timeouts.outage_wait(self._memory.outages)
            await workflow.sleep(wait, summary="waits: the authority answers")
        self._began = workflow.now()

    def _continue_if_full(self) -> None:
        if self._inbox.is_full() and self._inbox.is_idle:
            workflow.continue_as_new(self._memory)

    @property
    def _is_over(self) -> bool:
        return self._memory.is_unknown or self.has_ended or self._was_never_ordered

    @property
    def _was_never_ordered(self) -> bool:
        """There is nothing to look after: a message has left it nothing to do, or none came."""
        if self.is_ordered or self._memory.unreachable:
            return False
        was_sent_one = self._inbox.has_answered or self._memory.messages.rejected_count > 0
        return was_sent_one or workflow.now() - self._began >= timeouts.FIRST_APPLY

    def _report(self) -> None:
        workflow.set_current_details(self.page(self._inbox.fresh_request_id()))
        self._attributes.show(self.attributes())

    def _next_wake(self) -> tuple[timedelta, str]:
        """After how long to look again by itself, and what for."""
        memory = self._memory
        if self._is_over:
            return timeouts.AUDIT_RETRY, "the audit"
        if memory.unreachable:
            return timeouts.outage_wait(memory.outages), memory.unreachable
        if not self.is_ordered:
            left = self._began + timeouts.FIRST_APPLY - workflow.now()
            return min(timeouts.UNORDERED_LOOK, left), self.first_order
        wait, why = self.rest()
        return (min(wait, timeouts.AUDIT_RETRY) if memory.messages.unaudited else wait), why

    async def on_look(self, envelope: Envelope[Look]) -> str:
        """A hint: what changed is read from the authority."""
        return "Looking."

    # ── what a kind uses ────────────────────────────────────────────────────────────────────────

    async def step(self, activity: Activity[T], argument: object, summary: str) -> T:
        """The answer of a step; UNREACHABLE if it fails now and is to be taken again later."""
        memory = self._memory
        try:
            answer = await run_step(activity, argument, summary)
        except STEP_FAILURES as error:
            fail_if_elsewhere(error)
            refused = refusal_in(error)
            if refused is not None and self.unknown is not None:
                memory.is_unknown = refused.details[0] == self.unknown.value
            memory.outages += 1
            memory.unreachable = shorten(f"Could not {summary}: {sentence_of(error)}")
            return UNREACHABLE
        memory.unreachable, memory.outages = "", 0
        return answer

    async def ask(
        self, activity: Activity[T], argument: object, summary: str, whom: str = "The authority"
    ) -> T:
        """A step that a message asks for; its refusal is the answer to the sender."""
        try:
            return await run_step(activity, argument, summary, timeouts.ADMIT_RETRY)
        except STEP_FAILURES as error:
            refused = refusal_in(error)
            # It may have been done and counted all the same: only the authority knows.
            self._is_unsure |= refused is None
            why = f"{whom} does not answer: {sentence_of(error)}; send it again."
            raise refused or refusal(RefusalCode.WRONG_STATE, why) from error

    # ── what a kind gives ───────────────────────────────────────────────────────────────────────

    def key_of(self, id: str) -> K:
        """Which object, by the workflow's id; a refusal if the id names none.

        Messages are signed for a workflow id, so the id decides what they are about.
        """
        raise NotImplementedError

    def check_start(self, raw: RawValue) -> None:
        """Refuses a wrong input of the first run; whatever is not read here may be anything."""

    async def recall(self) -> bool:
        """Reads the object from the authority, if it knows one; False if it could not be asked."""
        return True

    @property
    def is_ordered(self) -> bool:
        """Whether there is an object to look after; if not, it waits a while for an order."""
        return True

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to be done for the object."""
        raise NotImplementedError

    async def advance(self) -> None:
        """Takes the steps that can be taken now."""
        raise NotImplementedError

    def page(self, request_id: str) -> str:
        """Its page in the Temporal UI, with examples under a request id that is free."""
        return describe(self.status(), workflow.now()).as_markdown(request_id)

    def attributes(self) -> dict[SearchAttributeKey[str], str | None]:
        """What it is found by."""
        phase = self.status().phase
        return {} if phase is None else {search_attributes.PHASE: phase.value}

    def rest(self) -> tuple[timedelta, str]:
        """How long to wait for messages before it looks again, and what for."""
        raise NotImplementedError

    def end(self) -> Any:
        """What the workflow answers at its end."""
        return self.status()

    def status(self) -> Any:
        """What the query answers; a kind declares the query."""
        raise NotImplementedError
