"""Empties nodes: cordons them, has their replicas replaced elsewhere, and says what keeps them.

The workloads replace their own replicas, within their disruption allowances and as slowly as these
demand; the drain marks what has to go, looks what is left, and ends when nothing is, when a person
cancels it, or at its deadline.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue, SearchAttributeKey

with workflow.unsafe.imports_passed_through():
    from durable.activities.drain import DrainActivities, EndStep
    from durable.model.fleet.drain import Drain, DrainProgress, DrainState, NodesTarget
    from durable.model.operators.rights import Scope, canonical_json
    from durable.model.refusal import RefusalCode
    from durable.signals import search_attributes
    from durable.signals.drains import CancelDrain, DrainNodes, DrainStatus
    from durable.signals.names import DRAIN, drain_id, drain_target
    from durable.signals.registry import messages_to
    from durable.validation.text import counted, show_moment
    from durable.validation.value import Value
    from durable.workflows import timeouts
    from durable.workflows.authorization import recall_or_authorize
    from durable.workflows.failures import refusal
    from durable.workflows.handlers import accepts
    from durable.workflows.inbox import Envelope
    from durable.workflows.orders import Memory, OrderWorkflow
    from durable.workflows.starts import read_start
    from durable.workflows.steps import UNREACHABLE

EXAMPLE = '{"target": {"region": "east", "kind": "node", "name": "node-7"}}'
BLOCKED_SHOWN = 3
# How a drain leaves its nodes; also true when it is read later.
UNTIL = "cordoned until `durable uncordon`"


@dataclass
class DrainMemory(Memory):
    drain: Drain | None = None
    progress: DrainProgress | None = None
    # How it is to end: decided, and not yet recorded in the region.
    ending: EndStep | None = None
    # How often in a row nothing had changed.
    tries: int = 0


class StartDrain(Value):
    """What a drain is started with; a memory that comes along is not believed."""

    target: NodesTarget


@workflow.defn(name=DRAIN)
@accepts(messages_to(DRAIN))
class DrainWorkflow(OrderWorkflow[NodesTarget, DrainMemory]):
    memory = DrainMemory
    first_order = "a person sends `drain`"

    def key_of(self, id: str) -> NodesTarget:
        return drain_target(id)

    def check_start(self, raw: RawValue) -> None:
        read_start(raw, StartDrain, lambda start: drain_id(start.target), EXAMPLE)

    async def recall(self) -> bool:
        """The drain of these nodes that the region knows and that has not ended."""
        drain = await self.step(DrainActivities.recall_drain, self._key, "read the drain")
        if drain is UNREACHABLE:
            return False
        self._memory.drain = drain
        return True

    @property
    def is_ordered(self) -> bool:
        return self._memory.drain is not None

    @property
    def has_ended(self) -> bool:
        drain = self._memory.drain
        return drain is not None and drain.state is not DrainState.DRAINING

    # ── messages ────────────────────────────────────────────────────────────────────────────────

    @workflow.query(name="status", description="What is left to move, and what keeps it.")
    def status(self) -> DrainStatus:
        memory = self._memory
        return DrainStatus(
            target=self._key, drain=memory.drain, progress=memory.progress, **memory.shown()
        )

    async def _act_on(self, envelope: Envelope[Any]) -> None:
        """Rights are the global side's; the region counts the request and makes the change."""
        again = await recall_or_authorize(envelope, Scope(region=self._key.region))
        if again is not None:
            self._inbox.repeat(envelope, again)
        else:
            await super()._act_on(envelope)

    async def on_drain(self, envelope: Envelope[DrainNodes]) -> str:
        """Cordons the nodes; under a request id that is known, answers what became of it."""
        message, region = envelope.request_message, self._key.region
        drain = await self.ask(DrainActivities.cordon, message, f"cordon {self._key}", region)
        self._memory.drain = self._memory.drain or drain
        if drain.state is not DrainState.DRAINING:
            return f"It has ended: {drain.outcome}"
        nodes, replicas = counted(len(drain.nodes), "node"), counted(drain.replicas, "replica")
        return f"Draining {nodes} with {replicas}, until {show_moment(drain.deadline_at)}."

    async def on_cancel(self, envelope: Envelope[CancelDrain]) -> str:
        memory, cancel = self._memory, envelope.payload
        if memory.drain is None:
            sentence = (
                f"{drain_id(self._key)} does not run; see `durable get drains`. `durable uncordon` "
                "lets nodes that it left cordoned take work again."
            )
            raise refusal(RefusalCode.UNKNOWN_DRAIN, sentence)
        if memory.ending is not None and memory.ending.message is not None:
            await self._finish()
            self._refuse_beside(memory.ending)
        before = memory.drain
        memory.ending = EndStep(
            drain=before,
            state=DrainState.CANCELLED,
            actor=cancel.actor,
            outcome=f"cancelled by {cancel.actor}: {cancel.reason}",
            message=envelope.request_message,
        )
        answer = await self._finish()
        if answer is None and before.state is DrainState.DRAINING:
            return (
                f"{self._key.region} does not answer. The drain is cancelled as soon as it does, "
                "and nothing more is replaced until then; if this request id was used before, the "
                "drain goes on, and its status and the audit say so."
            )
        if not answer:
            ended = f"The drain has ended before: {memory.drain.outcome}"
            raise refusal(RefusalCode.UNKNOWN_DRAIN, ended)
        if not self.has_ended:
            raise refusal(RefusalCode.KEY_CONFLICT, answer)
        return answer

    def _refuse_beside(self, pending: EndStep | None) -> None:
        """A cancel that waits for its region is not forgotten for another one."""
        if pending is not None:
            sentence = (
                f"{pending.actor} has cancelled it already; that is done as soon as "
                f"{self._key.region} answers."
            )
            raise refusal(RefusalCode.WRONG_STATE, sentence)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────

    async def advance(self) -> None:
        drain = self._memory.drain
        if drain is None or self.has_ended:
            return
        if self._memory.ending is None:
            # Again and again: what came there by other ways has to go, too.
            await self.step(DrainActivities.mark, drain, "mark what runs there")
            await self._observe(drain)
        cancel = self._memory.ending and self._memory.ending.message
        answer = await self._finish()
        if cancel is not None and answer and not self.has_ended:
            # Its sender was answered while the region did not say that the request id was used.
            self._inbox.reject(cancel.message, canonical_json(cancel.payload), answer)

    async def _observe(self, drain: Drain) -> None:
        """Looks what is left; the region's own clock says whether the deadline has passed."""
        memory = self._memory
        progress = await self.step(DrainActivities.observe, drain, "look what is left")
        if progress is UNREACHABLE:
            return
        memory.tries = memory.tries + 1 if progress.is_like(memory.progress) else 0
        memory.progress = progress
        if progress.left == 0:
            outcome = f"nothing is left of {counted(drain.replicas, 'replica')}; {UNTIL}"
            memory.ending = EndStep(drain=drain, state=DrainState.DRAINED, outcome=outcome)
        elif progress.is_overdue:
            outcome = _gave_up(progress)
            memory.ending = EndStep(drain=drain, state=DrainState.GAVE_UP, outcome=outcome)

    async def _finish(self) -> str | None:
        """Records how it ends, if that is decided; None while its region does not answer."""
        ending = self._memory.ending
        if ending is None:
            return None
        ended = await self.step(DrainActivities.finish, ending, f"end: {ending.state}")
        if ended is UNREACHABLE:
            return None
        self._memory.drain, self._memory.ending = ended.target, None
        return ended.sentence

    # ── reporting, resting ──────────────────────────────────────────────────────────────────────

    def attributes(self) -> dict[SearchAttributeKey[str], str | None]:
        progress = self._memory.progress
        blocked = None if progress is None else next(iter(progress.blocked), None)
        return {
            search_attributes.PHASE: self.status().state.value,
            search_attributes.PENDING_REASON: None if blocked is None else blocked.code.value,
        }

    def rest(self) -> tuple[timedelta, str]:
        memory = self._memory
        longest = min(timeouts.DRAIN_LONGEST, timeouts.DRAIN_FIRST * 2 ** min(memory.tries, 6))
        wait = timeouts.rest_for(memory.progress and memory.progress.deadline_in, longest)
        return wait, (memory.progress and memory.progress.waits_for) or "replicas to leave"


def _gave_up(progress: DrainProgress) -> str:
    shown = "; ".join(map(str, progress.workloads[:BLOCKED_SHOWN]))
    were = "was" if progress.left == 1 else "were"
    return (
        f"{counted(progress.left, 'replica')} {were} left there at the deadline; {UNTIL}. {shown}"
    )
