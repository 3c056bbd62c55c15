"""The status controller: what the authority knows of shares, told to their workflows.

Level-triggered and coalesced: a share that changed is told as a whole, some moments later, so that
a burst of observations is one signal. What could not be sent stays to be sent; after a restart all
is told once more.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

from temporalio.client import Client

from durable.authority.errors import AuthorityError
from durable.authority.regional import Regional
from durable.authority.status import ShareStatus, StatusFeed
from durable.duties.sending import Sender
from durable.model.refusal import RefusedError
from durable.model.states import BindingState, RequestState
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

# A placement has made these states itself.
_ITS_OWN = frozenset({BindingState.BOUND, BindingState.STARTING})

_UNDER_WAY = _ITS_OWN | {BindingState.RUNNING, BindingState.READY}

_FAILING = frozenset({BindingState.FAILED, BindingState.STOPPED, BindingState.UNKNOWN})

ShareKey = tuple[str, str, int]


class _Letter(NamedTuple):
    """A signal on its way; `content` is what makes it worth sending."""

    key: ShareKey
    to: str
    name: str
    message: Message
    content: object


class StatusController:
    """One region's observations, on their way to placements and workloads."""

    def __init__(self, regional: Regional, client: Client) -> None:
        self._feed = StatusFeed(regional.databases, regional.region)
        self._watch = regional.watch
        self._region = regional.region
        self._sender = Sender(client)
        self._due: dict[ShareKey, tuple[float, ShareStatus]] = {}
        self._sent: dict[tuple[ShareKey, str], object] = {}
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
            since = self._due.get(share.key, (now, share))[0]
            self._due[share.key] = (since, share)
        self._tell_those_who_wait()
        ripe = [share for since, share in self._due.values() if now - since >= _gather(share)]
        await self._tell(ripe[:ROUND])

    def _tell_those_who_wait(self) -> None:
        """A placement that is waiting in this process hears of its share here, not by a signal."""
        for key in self._watch.keys:
            share = self._feed.told(key)
            if share is not None and self._watch.tell(share):
                self._sent[key, "seen"] = share.seen().slots

    async def _tell(self, shares: list[ShareStatus]) -> None:
        letters = [letter for share in shares for letter in self._letters(share)]
        delivered = await self._sender.send_all(
            (letter.to, letter.name, letter.message) for letter in letters
        )
        failed: set[ShareKey] = set()
        for letter, done in zip(letters, delivered, strict=True):
            if done:
                self._sent[letter.key, letter.name] = letter.content
            else:
                failed.add(letter.key)
        for share in shares:
            if share.key in failed:
                continue
            self._due.pop(share.key, None)
            ended = share.request is None or share.request.state is RequestState.WITHDRAWN
            if ended and not share.slots:
                for name in ("seen", "report"):
                    self._sent.pop((share.key, name), None)

    def _letters(self, share: ShareStatus) -> Iterator[_Letter]:
        """What has to be said of a share and was not said before, to whom."""
        seen = share.seen()
        known = self._sent.get((share.key, "seen"))
        news = any(one.state not in _ITS_OWN for one in share.slots) or known is not None
        if news and known != seen.slots:
            yield _Letter(share.key, _placement(share), "seen", seen, seen.slots)
        report = share.report()
        content = report.model_dump(exclude={"version", "at"})
        if self._sent.get((share.key, "report")) != content:
            yield _Letter(share.key, _workload(share), "report", report, content)


def _gather(share: ShareStatus) -> float:
    states = {one.state for one in share.slots}
    under_way = not states.isdisjoint(_UNDER_WAY) and states.isdisjoint(_FAILING)
    return GATHER_UNDER_WAY_SECONDS if under_way else GATHER_SECONDS


def _placement(share: ShareStatus) -> str:
    return placement_id(share.tenant, share.workload, share.generation, share.region)


def _workload(share: ShareStatus) -> str:
    return workload_id(share.tenant, share.workload)
