"""What can be sent to a placement and asked of it; each message waits for its turn in the inbox."""

from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from durable.model.refusal import RefusalCode
    from durable.signals import messages, sentences
    from durable.signals.messages import Message
    from durable.signals.status import PlacementStatus
    from durable.workflows.failures import refusal
    from durable.workflows.inbox import Inbox, described
    from durable.workflows.placement.state import PlacementState

KINDS: dict[str, type[Message]] = {
    "hold": messages.Hold,
    "resume": messages.Resume,
    "retry_now": messages.RetryNow,
    "evict": messages.Evict,
    "release": messages.Release,
    "resize": messages.Resize,
    "seen": messages.Seen,
    "wake": messages.Wake,
}

HOLD = described(messages.Hold, sentences.HOLD)
RESUME = described(messages.Resume, sentences.RESUME)
RETRY_NOW = described(messages.RetryNow, sentences.RETRY_NOW)
EVICT = described(messages.Evict, sentences.EVICT)


class PlacementMessages:
    """The handlers; what people send as updates, which answer, may come as signals too."""

    _inbox: Inbox
    _state: PlacementState

    @workflow.query(name="status", description="Where every slot is, why, and who moves it next.")
    def status(self) -> PlacementStatus:
        return self._state.status()

    @workflow.update(name="hold", description=HOLD)
    async def hold(self, message: messages.Hold) -> str:
        return await self._inbox.update("hold", message)

    @workflow.update(name="resume", description=RESUME)
    async def resume(self, message: messages.Resume) -> str:
        return await self._inbox.update("resume", message)

    @workflow.update(name="retry_now", description=RETRY_NOW)
    async def retry_now(self, message: messages.RetryNow) -> str:
        return await self._inbox.update("retry_now", message)

    @workflow.update(name="evict", description=EVICT)
    async def evict(self, message: messages.Evict) -> str:
        return await self._inbox.update("evict", message)

    @evict.validator
    def _may_evict(self, message: messages.Evict) -> None:
        slots = self._state.board.slots
        unknown = sorted(set(message.slots) - set(slots))
        if unknown:
            has = ", ".join(map(str, sorted(slots))) or "none"
            said = f"There is no slot {unknown[0]} here; slots: {has}"
            raise refusal(RefusalCode.UNKNOWN_SLOT, said)

    @workflow.signal(dynamic=True, description="The same messages as signals; none is dropped.")
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        self._inbox.signal(name, args)
