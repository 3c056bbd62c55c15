"""The status controller: has workflows look at shares of which the authority knows more.

Level-triggered and coalesced: a share that changed is reported some moments later, so that a burst
of observations is one signal, which is a hint and carries nothing to be believed. What could not
be sent stays due; after a restart everything is reported once more, what is settled at a slow pace.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from operator import ne
from typing import Any, NamedTuple

from temporalio.client import Client

from durable.authority.db.errors import AuthorityError
from durable.authority.reads.share_feed import ShareFeed
from durable.authority.reads.shares import ShareKey, ShareStatus
from durable.authority.sides import Regional
from durable.model.placement.claims import ObservedSlot
from durable.model.refusal import RefusedError
from durable.model.states import COMING_UP, TROUBLED, BindingState
from durable.signals.names import placement_id, workload_id
from durable.signals.payloads import Look, Payload
from durable.signals.sending import SignalSender

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
# Finds what writes nothing when it happens: a lease that lapses, which lasts as long as this.
SWEEP_SECONDS = 15.0
# From the first change of a share to its signal: what else happens until then goes along. While
# slots are coming up or going down more will happen soon, and nothing acts on a count of them.
GATHER_SECONDS = 0.15
GATHER_MOVING_SECONDS = 1.0
RETRY_SECONDS = 1.0
MAX_SIGNALS_PER_ROUND = 500
# While placements start, their tasks go before the workloads' counts: one report in so many is
# sent each round, so that none waits for more than some seconds.
REPORTS_FRACTION = 25

# After a restart it is unknown what was reported. Those that are where they must be are asked
# to look at this pace: replayed all at once, their histories would take longer than a task lasts.
RESYNC_PER_SECOND = 4.0

# A placement has made these states itself, and of what has ended it frees the claim itself.
_OWN_STATES = frozenset({BindingState.BOUND, BindingState.STARTING})
_ENDED_STATES = frozenset({BindingState.FAILED, BindingState.STOPPED})


class _Signal(NamedTuple):
    """A signal to send; `content` is what makes it worth sending."""

    share: ShareStatus
    workflow_id: str
    payload: Payload
    content: object


class _Outbox:
    """One kind of signal: the shares that are due to be reported, and what was reported last."""

    def __init__(
        self,
        sender: SignalSender,
        make: Callable[[ShareStatus], _Signal],
        *,
        is_news: Callable[[Any, Any], bool],
        is_moving: Callable[[ShareStatus], bool],
    ) -> None:
        self._sender, self._make = sender, make
        self._is_news, self._is_moving = is_news, is_moving
        self._due: dict[ShareKey, tuple[float, ShareStatus]] = {}
        self._reported: dict[ShareKey, object] = {}

    def put(self, share: ShareStatus, since: float) -> None:
        """Has a share reported that is due since then, which may lie ahead."""
        since = min(since, self._due.get(share.key, (since, share))[0])
        self._due[share.key] = (since, share)

    def mark_reported(self, key: ShareKey, content: object) -> None:
        self._reported[key] = content

    def knows(self, key: ShareKey) -> bool:
        return key in self._reported or key in self._due

    def __len__(self) -> int:
        return len(self._due)

    async def flush(self, now: float, *, most: int) -> bool:
        """Sends what was gathered for long enough and is news, the longest due first.

        What could not be sent stays due. True when there was anything to send.
        """
        ripe, news = self._ripe(now, most)
        sent = await self._sender.send_all(
            (signal.workflow_id, "look", signal.payload) for signal in news
        )
        failed = {signal.share.key for signal, done in zip(news, sent, strict=True) if not done}
        for signal in ripe:
            key = signal.share.key
            if key not in failed:
                self._settle(signal)
            else:  # to the end: one that cannot be sent keeps no other waiting
                self._due[key] = self._due.pop(key)
        return bool(news)

    def _ripe(self, now: float, most: int) -> tuple[list[_Signal], list[_Signal]]:
        ripe: list[_Signal] = []
        news: list[_Signal] = []
        for since, share in self._due.values():
            if now - since < (GATHER_MOVING_SECONDS if self._is_moving(share) else GATHER_SECONDS):
                continue
            signal = self._make(share)
            ripe.append(signal)
            reported = self._reported.get(share.key)
            if reported is None or self._is_news(reported, signal.content):
                news.append(signal)
            if len(news) == most:
                break
        return ripe, news

    def _settle(self, signal: _Signal) -> None:
        share = signal.share
        self._due.pop(share.key, None)
        if share.has_ended:
            self._reported.pop(share.key, None)
        else:
            self._reported[share.key] = signal.content


class StatusController:
    """One region's observations, on their way to placements and workloads."""

    def __init__(self, regional: Regional, client: Client) -> None:
        self._feed = ShareFeed(regional.databases, regional.region)
        self._watch = regional.watch
        self._region = regional.region
        sender = SignalSender(client)
        self._placements = _Outbox(sender, _to_placement, is_news=has_news, is_moving=_is_coming_up)
        self._workloads = _Outbox(sender, _to_workload, is_news=ne, is_moving=_is_moving)
        # Those that change go on by what is reported, so nothing else goes before that.
        self._changing = _Outbox(sender, _to_workload, is_news=ne, is_moving=_is_moving)
        self._swept_at = float("-inf")

    async def run(self) -> None:
        while True:
            try:
                await self.once(time.monotonic())
                await asyncio.sleep(POLL_SECONDS)
            except (AuthorityError, RefusedError) as error:
                log.warning("status of %s: %s", self._region, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def once(self, now: float) -> None:
        """Reads what changed, and sends what was gathered for long enough."""
        is_first = self._swept_at == float("-inf")
        if now - self._swept_at >= SWEEP_SECONDS:
            changed = await self._feed.everything()
            self._swept_at = now
        else:
            changed = await self._feed.changed()
        settled = 0
        for share in changed:
            is_settled = is_first and share.is_settled
            settled += is_settled
            since = now + settled / RESYNC_PER_SECOND if is_settled else now
            if self._is_news_to_its_placement(share):
                self._placements.put(share, since)
            is_changing = self._feed.is_changing(share)
            (self._changing if is_changing else self._workloads).put(share, since)
        is_busy = self._answer_waiters()
        is_busy |= await self._placements.flush(now, most=MAX_SIGNALS_PER_ROUND)
        await self._changing.flush(now, most=MAX_SIGNALS_PER_ROUND)
        few = 1 + len(self._workloads) // REPORTS_FRACTION
        await self._workloads.flush(now, most=few if is_busy else MAX_SIGNALS_PER_ROUND)

    def _answer_waiters(self) -> bool:
        """A placement that waits in this process gets its share here, not by a signal."""
        keys = self._watch.keys
        for key in keys:
            share = self._feed.last(key)
            if share is not None and self._watch.publish(share):
                self._placements.mark_reported(key, share.observed().slots)
        return bool(keys)

    def _is_news_to_its_placement(self, share: ShareStatus) -> bool:
        """Whether its placement does not know all of it by itself."""
        others = any(slot.state not in _OWN_STATES for slot in share.slots)
        return others or self._placements.knows(share.key)


def has_news(reported: Sequence[ObservedSlot], observed: Sequence[ObservedSlot]) -> bool:
    """Whether a placement does not know by itself what was observed of its slots.

    It has bound, started and stopped them itself, and freed what had ended.
    """
    before = {one.token: one for one in reported}
    tokens = {one.token for one in observed}
    lost = [one for one in reported if one.token not in tokens]
    return any(one.state not in _ENDED_STATES for one in lost) or any(
        one.state not in _OWN_STATES and not _says_the_same(before.get(one.token), one)
        for one in observed
    )


def _says_the_same(before: ObservedSlot | None, now: ObservedSlot) -> bool:
    asked = {"stop_requested": now.stop_requested, "stop_requested_at": now.stop_requested_at}
    return before is not None and before.model_copy(update=asked) == now


def _to_placement(share: ShareStatus) -> _Signal:
    workflow_id = placement_id(share.tenant, share.workload, share.generation, share.region)
    return _Signal(share, workflow_id, _hint(share), share.observed().slots)


def _to_workload(share: ShareStatus) -> _Signal:
    content = share.report().model_dump(exclude={"version", "at"})
    return _Signal(share, workload_id(share.tenant, share.workload), _hint(share), content)


def _hint(share: ShareStatus) -> Look:
    return Look(
        why=f"observed at version {share.as_of}",
        region=share.region,
        generation=share.generation,
        seen_until=share.read_until,
    )


def _is_coming_up(share: ShareStatus) -> bool:
    """Whether more will be observed of it soon, and nothing is wrong."""
    states = {slot.state for slot in share.slots}
    return not states.isdisjoint(COMING_UP) and states.isdisjoint(TROUBLED)


def _is_moving(share: ShareStatus) -> bool:
    """Whether slots are also going down: freed soon, and then gone from the request, too."""
    staying = {slot.state for slot in share.slots if not slot.stop_requested}
    request = share.request
    is_freed = request is not None and len(share.slots) + request.waiting < request.slots_left
    is_going_down = is_freed or any(slot.stop_requested for slot in share.slots)
    is_moving = is_going_down or not staying.isdisjoint(COMING_UP)
    return is_moving and staying.isdisjoint(TROUBLED)
