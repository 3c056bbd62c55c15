"""Who waits in this process for a share to come through, so that it needs no message."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from durable.authority.reads.shares import ShareKey, ShareStatus
from durable.model.states import BindingState

# Whoever waits keeps a worker's slot for workflow tasks from others, who may have something to do.
MOST_WAITERS = 30


@dataclass(frozen=True, slots=True)
class _Waiter:
    tokens: frozenset[int]
    passing: frozenset[BindingState]
    answer: "asyncio.Future[ShareStatus]"


class ShareWatch:
    """Shares whose placement is waiting right now; whoever follows the region tells them."""

    def __init__(self) -> None:
        self._waiters: dict[ShareKey, _Waiter] = {}

    @property
    def keys(self) -> Iterable[ShareKey]:
        return tuple(self._waiters)

    async def come_through(
        self,
        key: ShareKey,
        tokens: Iterable[int],
        passing: Iterable[BindingState],
        *,
        seconds: float,
    ) -> ShareStatus | None:
        """The share once none of these bindings is in a passing state, if it comes so far soon."""
        if len(self._waiters) >= MOST_WAITERS:
            return None
        answer: asyncio.Future[ShareStatus] = asyncio.get_running_loop().create_future()
        waiter = self._waiters[key] = _Waiter(frozenset(tokens), frozenset(passing), answer)
        try:
            # Not `wait_for`: what was told in the moment of the timeout counts as told.
            await asyncio.wait({answer}, timeout=seconds)
            return answer.result() if answer.done() else None
        finally:
            if self._waiters.get(key) is waiter:
                del self._waiters[key]

    def tell(self, share: ShareStatus) -> bool:
        """Whether somebody waited for just this."""
        waiter = self._waiters.get(share.key)
        if waiter is None or waiter.answer.done():
            return False
        there = {slot.token: slot.state for slot in share.slots}
        # One that is not there yet was started after this was read.
        states = [there.get(token, BindingState.BOUND) for token in waiter.tokens]
        if any(state in waiter.passing for state in states):
            return False
        waiter.answer.set_result(share)
        return True
