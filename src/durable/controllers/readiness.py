"""The readiness controller: keeps with each critical workload whether it would come back.

Simulated again when regions or workloads have changed, but not more often than now and then: in a
busy fleet something always has, and a large one takes long to simulate.
"""

import logging
import time
from collections.abc import Callable, Container, Iterable

from temporalio.client import Client

from durable.authority.db.clock import read_time
from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import ask_regions
from durable.authority.fleet.policies import read_recovery_policy
from durable.authority.fleet.regions import list_regions, read_region
from durable.authority.recovery.readiness import keep_readiness
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_facts
from durable.authority.workloads.rows import list_workloads
from durable.controllers.rounds import in_rounds
from durable.model.ids import RegionId
from durable.model.recovery.readiness import Recoverable, recoverable_of
from durable.model.recovery.recoveries import RecoveryPhase
from durable.plan.readiness import Readiness
from durable.planners.recovery.objective import is_critical
from durable.signals.names import workload_id
from durable.signals.payloads import Look
from durable.signals.sending import SignalSender

log = logging.getLogger(__name__)

POLL_SECONDS = 10.0
# Leases and budgets lapse without a change of anything else.
LONGEST_SECONDS = 60.0
# After a simulation, it rests for so many times as long as that took.
REST = 9.0


class ReadinessController:
    """Every critical workload, after the loss of every region."""

    def __init__(
        self,
        databases: Databases,
        client: Client,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._databases, self._sender = databases, SignalSender(client)
        self._clock = clock
        self._seen: object = None
        self._simulated_at = self._rests_until = float("-inf")

    async def run(self) -> None:
        what = "could not simulate the loss of a region"
        await in_rounds(self.once, POLL_SECONDS, what)

    async def once(self) -> int:
        """Simulates all losses if something has changed; answers of how many it is news."""
        now = self._clock()
        if now < self._rests_until:
            return 0
        regions = await list_regions(self._databases)
        if not regions:
            return 0  # before the first fleet there is no policy either
        states = await ask_regions(regions, lambda one: read_region(self._databases, one))
        workloads = await list_workloads(self._databases)
        revisions = {(one.tenant, one.workload): one.revision for one in workloads}
        facts = await read_facts(self._databases)
        taken_for = {region: fact.state for region, fact in facts.items()}
        seen = (states.by_region, tuple(states.unreachable), taken_for, revisions)
        is_recent = now - self._simulated_at < LONGEST_SECONDS
        if is_recent and (seen == self._seen or await self._is_moving()):
            return 0
        began = self._clock()
        policy = await read_recovery_policy(self._databases)
        at = await read_time(self._databases)
        is_any_critical = any(
            is_critical(one.spec.priority, one.spec.kind, policy) for one in workloads
        )
        outlooks = (
            await Readiness(self._databases).outlooks(regions, policy, at)
            if is_any_critical
            else []
        )
        ended = self._clock()
        self._rests_until = ended + REST * (ended - began)
        found = recoverable_of(outlooks)
        news = await keep_readiness(self._databases, found)
        self._seen, self._simulated_at = seen, now
        shares = {(one.tenant, one.workload): one for one in workloads}
        hints = [
            (
                workload_id(*name),
                "look",
                Look(
                    why="whether it would survive the loss of a region has changed",
                    region=region_to_read(shares[name].share, states.by_region),
                    generation=shares[name].generation,
                ),
            )
            for name in news
            if name in shares and shares[name].share
        ]
        await self._sender.send_all(hints)
        for name in news:
            _report(name, found.get(name))
        return len(news)

    async def _is_moving(self) -> bool:
        """While a recovery moves work, all of it changes every second, and is busy with that."""
        recoveries = await list_recoveries(self._databases)
        return any(one.phase is RecoveryPhase.MOVING for one in recoveries)


def region_to_read(share: Iterable[RegionId], answering: Container[RegionId]) -> RegionId:
    """A region that answers if there is one: the news often is that another one does not."""
    return min(share, key=lambda region: (region not in answering, region))


def _report(name: tuple[str, str], one: Recoverable | None) -> None:
    if one is not None:
        level = logging.INFO if one.is_met else logging.WARNING
        log.log(level, "%s/%s: %s", *name, one.sentence)
