"""Lets a placement wait in this process for its share, so that it needs no message."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from durable.authority.reads.shares import ShareKey, ShareStatus
from durable.model.states import BindingState

# A waiter occupies one of the worker's slots for workflow tasks, which others may need.
MAX_WAITERS = 30


@dataclass(frozen=True, slots=True)
class _Waiter:
    tokens: frozenset[int]
    passing: frozenset[BindingState]
    answer: "asyncio.Future[ShareStatus]"


class ShareWatch:
    """Shares whose placements wait right now; whoever follows the region publishes to them."""

    def __init__(self) -> None:
        self._waiters: dict[ShareKey, _Waiter] = {}

    @property
    def keys(self) -> Iterable[ShareKey]:
        return tuple(self._waiters)

    async def wait_past(
        self,
        key: ShareKey,
        tokens: Iterable[int],
        passing: Iterable[BindingState],
        *,
        seconds: float,
    ) -> ShareStatus | None:
        """The share once none of these bindings is in a passing state; None if that is late."""
        if len(self._waiters) >= MAX_WAITERS:
            return None
        answer: asyncio.Future[ShareStatus] = asyncio.get_running_loop().create_future()
        waiter = self._waiters[key] = _Waiter(frozenset(tokens), frozenset(passing), answer)
        try:
            # Not `wait_for`: what is published at the moment of the timeout still counts.
            await asyncio.wait({answer}, timeout=seconds)
            return answer.result() if answer.done() else None
        finally:
            if self._waiters.get(key) is waiter:
                del self._waiters[key]

    def publish(self, share: ShareStatus) -> bool:
        """Answers whether somebody waited for just this."""
        waiter = self._waiters.get(share.key)
        if waiter is None or waiter.answer.done():
            return False
        there = {slot.token: slot.state for slot in share.slots}
        # A binding that is missing was started after the share was read.
        states = [there.get(token, BindingState.BOUND) for token in waiter.tokens]
        if any(state in waiter.passing for state in states):
            return False
        waiter.answer.set_result(share)
        return True
