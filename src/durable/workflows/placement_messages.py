"""What can be sent to a placement and asked of it; each message waits for its turn in the inbox."""

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from durable.signals import messages
    from durable.signals.messages import Message
    from durable.signals.status import PlacementStatus
    from durable.workflows.inbox import Inbox, described
    from durable.workflows.placement_state import PlacementState

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

HOLD = described(messages.Hold, "Place nothing new until resumed.")
RESUME = described(messages.Resume, "Go on placing after a hold.")
RETRY_NOW = described(messages.RetryNow, "Look for a place at once.")
EVICT = described(messages.Evict, "Stop slots and place them again.")
RELEASE = described(messages.Release, "Stop every slot for good.")


class PlacementMessages:
    """The handlers; the same five for people as updates, which answer, and as signals."""

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
            raise ApplicationError(f"There is no slot {unknown[0]} here; slots: {has}"[:500])

    @workflow.update(name="release", description=RELEASE)
    async def release(self, message: messages.Release) -> str:
        return await self._inbox.update("release", message)

    @workflow.signal(name="hold", description=HOLD)
    def on_hold(self, raw: Any = None) -> None:
        self._inbox.signal("hold", raw)

    @workflow.signal(name="resume", description=RESUME)
    def on_resume(self, raw: Any = None) -> None:
        self._inbox.signal("resume", raw)

    @workflow.signal(name="retry_now", description=RETRY_NOW)
    def on_retry_now(self, raw: Any = None) -> None:
        self._inbox.signal("retry_now", raw)

    @workflow.signal(name="evict", description=EVICT)
    def on_evict(self, raw: Any = None) -> None:
        self._inbox.signal("evict", raw)

    @workflow.signal(name="release", description=RELEASE)
    def on_release(self, raw: Any = None) -> None:
        self._inbox.signal("release", raw)

    @workflow.signal(dynamic=True, description="For controllers; anything unknown is kept, unread.")
    def on_other(self, name: str, args: Sequence[RawValue]) -> None:
        self._inbox.dynamic(name, args)
