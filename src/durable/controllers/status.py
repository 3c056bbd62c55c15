"""The status controller: what the authority knows of shares, told to their workflows.

Level-triggered and coalesced: a share that changed is told as a whole, some moments later, so that
a burst of observations is one signal. What could not be sent stays to be sent; after a restart all
is told once more.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from temporalio.client import Client

from durable.authority.db.errors import AuthorityError
from durable.authority.reads.share_feed import ShareFeed
from durable.authority.reads.shares import ShareKey, ShareStatus
from durable.authority.regional import Regional
from durable.controllers.sending import Sender
from durable.model.refusal import RefusedError
from durable.model.states import COMING_UP, TROUBLED, BindingState, RequestState
from durable.signals.messages import Message
from durable.signals.names import placement_id, workload_id

log = logging.getLogger(__name__)

LOOK_EVERY_SECONDS = 0.2
# Finds what writes nothing when it happens: a lease that lapses, which lasts as long as this.
SWEEP_EVERY_SECONDS = 15.0
# From the first change of a share to its signal: what else happens until then goes along. While
# slots are on their way more will happen soon, and nobody acts on a count of them.
GATHER_SECONDS = 0.15
GATHER_UNDER_WAY_SECONDS = 1.0
AFTER_AN_ERROR_SECONDS = 1.0
ROUND = 500
# While placements start, their tasks go before the workloads' counts: a part of those that wait
# is told at each look, so that none waits for more than some seconds.
REPORTS_PART = 25

# A placement has made these states itself.
_ITS_OWN = frozenset({BindingState.BOUND, BindingState.STARTING})


class _Letter(NamedTuple):
    """A signal on its way; `content` is what makes it worth sending."""

    share: ShareStatus
    to: str
    message: Message
    content: object


class _Audience:
    """Who is told of shares in one kind of signal: what is due to be said, and what was said."""

    def __init__(self, name: str, write: Callable[[ShareStatus], _Letter], sender: Sender) -> None:
        self._name, self._write, self._sender = name, write, sender
        self._due: dict[ShareKey, tuple[float, ShareStatus]] = {}
        self._said: dict[ShareKey, object] = {}

    def put(self, share: ShareStatus, now: float) -> None:
        since = self._due.get(share.key, (now, share))[0]
        self._due[share.key] = (since, share)

    def has_heard(self, key: ShareKey, content: object) -> None:
        self._said[key] = content

    def knows(self, key: ShareKey) -> bool:
        return key in self._said or key in self._due

    async def tell(self, now: float, *, most: int) -> bool:
        """Sends what was gathered for long enough and not said before, the longest first.

        What could not be sent stays due. True when there was anything to send.
        """
        ripe, news = self._ripe(now, most)
        sent = await self._sender.send_all((one.to, self._name, one.message) for one in news)
        failed = {one.share.key for one, done in zip(news, sent, strict=True) if not done}
        for one in ripe:
            if one.share.key not in failed:
                self._settle(one)
            else:  # at the end: one that cannot be told keeps nobody else waiting
                self._due[one.share.key] = self._due.pop(one.share.key)
        return bool(news)

    def __len__(self) -> int:
        return len(self._due)

    def _ripe(self, now: float, most: int) -> tuple[list[_Letter], list[_Letter]]:
        ripe: list[_Letter] = []
        news: list[_Letter] = []
        for since, share in self._due.values():
            if now - since < _gather(share):
                continue
            letter = self._write(share)
            ripe.append(letter)
            if self._said.get(share.key) != letter.content:
                news.append(letter)
            if len(news) == most:
                break
        return ripe, news

    def _settle(self, letter: _Letter) -> None:
        share = letter.share
        self._due.pop(share.key, None)
        ended = share.request is None or share.request.state is RequestState.WITHDRAWN
        if ended and not share.slots:
            self._said.pop(share.key, None)
        else:
            self._said[share.key] = letter.content


class StatusController:
    """One region's observations, on their way to placements and workloads."""

    def __init__(self, regional: Regional, client: Client) -> None:
        self._feed = ShareFeed(regional.databases, regional.region)
        self._watch = regional.watch
        self._region = regional.region
        sender = Sender(client)
        self._placements = _Audience("seen", _to_placement, sender)
        self._workloads = _Audience("report", _to_workload, sender)
        self._swept_at = float("-inf")

    async def run(self) -> None:
        while True:
            try:
                await self.once(time.monotonic())
                await asyncio.sleep(LOOK_EVERY_SECONDS)
            except (AuthorityError, RefusedError) as error:
                log.warning("status of %s: %s", self._region, error)
                await asyncio.sleep(AFTER_AN_ERROR_SECONDS)

    async def once(self, now: float) -> None:
        """Look at what changed, and send what has been gathered for long enough."""
        if now - self._swept_at >= SWEEP_EVERY_SECONDS:
            changed = await self._feed.everything()
            self._swept_at = now
        else:
            changed = await self._feed.changed()
        for share in changed:
            if self._is_news_to_its_placement(share):
                self._placements.put(share, now)
            self._workloads.put(share, now)
        busy = self._tell_those_who_wait()
        busy |= await self._placements.tell(now, most=ROUND)
        await self._workloads.tell(
            now, most=1 + len(self._workloads) // REPORTS_PART if busy else ROUND
        )

    def _tell_those_who_wait(self) -> bool:
        """A placement that is waiting in this process hears of its share here, not by a signal."""
        keys = self._watch.keys
        for key in keys:
            share = self._feed.last(key)
            if share is not None and self._watch.publish(share):
                self._placements.has_heard(key, share.seen().slots)
        return bool(keys)

    def _is_news_to_its_placement(self, share: ShareStatus) -> bool:
        """Whether its placement does not know all of it by itself."""
        others = any(one.state not in _ITS_OWN for one in share.slots)
        return others or self._placements.knows(share.key)


def _to_placement(share: ShareStatus) -> _Letter:
    to = placement_id(share.tenant, share.workload, share.generation, share.region)
    seen = share.seen()
    return _Letter(share, to, seen, seen.slots)


def _to_workload(share: ShareStatus) -> _Letter:
    report = share.report()
    content = report.model_dump(exclude={"version", "at"})
    return _Letter(share, workload_id(share.tenant, share.workload), report, content)


def _gather(share: ShareStatus) -> float:
    states = {one.state for one in share.slots}
    under_way = not states.isdisjoint(COMING_UP) and states.isdisjoint(TROUBLED)
    return GATHER_UNDER_WAY_SECONDS if under_way else GATHER_SECONDS
