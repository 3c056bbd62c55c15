"""Registers nodes, renews their leases, and fences their replicas when a lease ends."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice

from durable.agent.driver import FENCED, FENCED_REGION, Driver
from durable.agent.leases import Leases, Timing
from durable.agent.log import FailureLog, Log
from durable.agent.replicas import Replicas
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.node_sessions import (
    read_region_lease,
    register_nodes,
    renew_leases,
)
from durable.failpoints import Failpoint, reach
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import NodeId, RegionId
from durable.model.refusal import RefusalCode, RefusedError

MAX_NODES_PER_MESSAGE = 1_000


class NodeSessions:
    """Keeps the nodes' sessions and leases alive, and stops what must not run without a lease."""

    def __init__(
        self,
        databases: Databases,
        region: RegionId,
        leases: Leases,
        replicas: Replicas,
        driver: Driver,
        timing: Timing,
        clock: Callable[[], float],
        log: Log,
        host: str,
    ) -> None:
        self._databases = databases
        self._region = region
        self._leases = leases
        self._replicas = replicas
        self._driver = driver
        self._timing = timing
        self._clock = clock
        self._log = log
        self._host = host
        self._failures = FailureLog(log)
        self._was_region_lapsed = False

    async def register(self, nodes: Sequence[NodeSpec], epoch: int) -> None:
        """Begins a session for each node, in which everything is reported again."""
        await self._read_region()
        for start in range(0, len(nodes), MAX_NODES_PER_MESSAGE):
            await self._register(nodes[start : start + MAX_NODES_PER_MESSAGE], epoch)

    async def _register(self, nodes: Sequence[NodeSpec], epoch: int) -> None:
        # Before it is sent: the authority's lease is then never shorter than ours.
        sent_at = self._clock()
        ttl = self._timing.lease_ttl_seconds
        try:
            begun = await register_nodes(
                self._databases,
                self._region,
                nodes,
                epoch=epoch,
                lease_ttl_seconds=ttl,
                host=self._host,
            )
        except RefusedError as error:
            if error.refusal.code is RefusalCode.FENCED_AGENT:
                raise
            await self._register_halves(nodes, epoch, error)
            return
        reach(Failpoint.AFTER_REGISTER)
        self._leases.begun(begun, sent_at)
        self._replicas.report_again(begun.keys())
        self._log("registered", region=self._region, nodes=len(begun), epoch=epoch)

    async def _register_halves(
        self, nodes: Sequence[NodeSpec], epoch: int, error: RefusedError
    ) -> None:
        """Bisects, so that one node that is refused does not keep its neighbours out."""
        if len(nodes) == 1:
            self._failures.failed(f"register {nodes[0].id}", error)
            return
        middle = len(nodes) // 2
        await self._register(nodes[:middle], epoch)
        await self._register(nodes[middle:], epoch)

    async def keep_renewing(self, session_ended: asyncio.Event) -> None:
        """Renews all leases three times within their duration."""
        pause = self._timing.renew_seconds
        while True:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(self._timing.renew_seconds):
                    if await self._renew():
                        session_ended.set()
                self._failures.recovered("renew leases")
                pause = self._timing.renew_seconds
            except (AuthorityError, TimeoutError) as error:
                self._failures.failed("renew leases", error)
                pause = min(self._timing.retry_seconds, self._timing.renew_seconds)

    async def _renew(self) -> bool:
        """Whether the authority has ended some session."""
        # Those that end soonest come first, so that it is not always the same nodes that are left
        # over when time runs out.
        await self._read_region()
        sessions = iter(self._leases.by_deadline())
        lost: dict[NodeId, int] = {}
        while part := dict(islice(sessions, MAX_NODES_PER_MESSAGE)):
            sent_at = self._clock()
            renewed = await renew_leases(
                self._databases,
                self._region,
                part,
                lease_ttl_seconds=self._timing.lease_ttl_seconds,
            )
            # Only for the same session: another may have begun while the answer was on its way.
            self._leases.renewed(
                [node for node in renewed if self._leases.sessions.get(node) == part[node]],
                sent_at,
            )
            lost |= {node: session for node, session in part.items() if node not in renewed}
        for node, session in lost.items():
            self._leases.end_session(node, session)
        if lost:
            self._log("session ended", region=self._region, nodes=len(lost))
        return bool(lost)

    async def _read_region(self) -> None:
        sent_at = self._clock()
        left = await read_region_lease(self._databases, self._region)
        self._leases.bound_by_region(left, sent_at)

    async def _fence_region(self) -> None:
        """Once for each lapse: until the lease is renewed, nothing that would stop is started."""
        has_lapsed = self._leases.has_region_lapsed(self._clock())
        if has_lapsed and not self._was_region_lapsed:
            self._log("lease of the region ended", region=self._region)
            for replica in self._replicas:
                if replica.stops_when_cut_off and not replica.has_ended:
                    await self._driver.stop(replica.assignment.token, FENCED_REGION)
        self._was_region_lapsed = has_lapsed

    async def keep_fencing(self, session_ended: asyncio.Event) -> None:
        """Acts at the end of each lease, even while a renewal hangs in the network."""
        while True:
            await self._fence_region()
            lapsed = frozenset(self._leases.take_lapsed(self._clock()))
            if lapsed:
                self._log("lease ended", region=self._region, nodes=len(lapsed))
                for replica in self._replicas:
                    is_cut_off = replica.assignment.node in lapsed and not replica.has_ended
                    if is_cut_off and replica.stops_when_cut_off:
                        await self._driver.stop(replica.assignment.token, FENCED)
                session_ended.set()
            await asyncio.sleep(self._timing.fence_check_seconds)
