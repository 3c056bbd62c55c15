"""The loop of an agent: follow the region, run what it assigns, tell what is seen, keep leases.

An agent never trusts what it was last told for longer than its lease: cut off, it stops what asked
for that; back again, it first reads what the region says, stops what was given away, and only then
begins a new session, in which it tells everything again.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Protocol

from durable.agent.drivers import Driver
from durable.agent.leases import Leases, boot_seconds
from durable.agent.log import Log, Troubles
from durable.agent.membership import Membership
from durable.agent.pace import Pace
from durable.agent.reconciler import Reconciler
from durable.agent.replicas import Replicas
from durable.agent.reporter import Reporter
from durable.authority.cache.watch import watch
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.assignments import read_assignments
from durable.authority.fleet.regions import read_region
from durable.model.ids import ActorId, NodeId, RegionId
from durable.model.refusal import RefusedError
from durable.model.regions import NodeSpec

# Few nodes are named in each read; a host of many reads the region and picks its own.
NAMED_AT_MOST = 100

_TROUBLES = (AuthorityError, RefusedError, TimeoutError)


class Nodes(Protocol):
    """Which nodes this agent hosts in its region, as they are described now."""

    async def refresh(self) -> Mapping[NodeId, NodeSpec]: ...


class Agent:
    """Hosts nodes of one region with one driver."""

    def __init__(
        self,
        databases: Databases,
        region: RegionId,
        nodes: Nodes,
        driver: Driver,
        *,
        name: ActorId,
        log: Log,
        pace: Pace | None = None,
        tells_each: bool = True,
        leases: Leases | None = None,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        pace = pace or Pace()
        self._databases = databases
        self._region = region
        self._nodes = nodes
        self._driver = driver
        self._pace = pace
        self._log = log
        self._troubles = Troubles(log)
        self._leases = leases or Leases(pace.trusted_seconds)
        self._replicas = Replicas(log, tells_each=tells_each)
        self._reconciler = Reconciler(driver, self._replicas, self._leases, clock)
        self._membership = Membership(
            databases, region, self._leases, self._replicas, driver, pace, clock, log
        )
        self._reporter = Reporter(
            databases, region, name, self._replicas, self._leases, self._reconciler, pace, log
        )
        self._hosted: Mapping[NodeId, NodeSpec] = {}
        self._version = 0
        self._needs_whole_read = True
        self._wanted = asyncio.Event()
        self._wanted.set()

    async def run(self) -> None:
        """Runs until it is cancelled; what the driver runs goes on, unless that is its nature."""
        try:
            for assignment in await self._driver.adopt(self._replicas.saw):
                self._replicas.add(assignment)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._membership.keep_fencing(self._wanted))
                tasks.create_task(self._membership.keep_renewing(self._wanted))
                tasks.create_task(self._reporter.run(self._wanted))
                tasks.create_task(self._listen())
                tasks.create_task(self._keep_reconciling())
        finally:
            await self._driver.close()

    async def _listen(self) -> None:
        url = self._databases.at_region(self._region, "durable_agent").url
        address = url.render_as_string(hide_password=False)
        regions = frozenset({self._region})
        while True:
            try:
                changes = watch(address, regions, resync_seconds=self._pace.resync_seconds)
                async with aclosing(changes):
                    async for change in changes:
                        self._needs_whole_read |= change.is_resync
                        self._wanted.set()
                        self._troubles.over("follow the region")
            except _TROUBLES as error:
                self._troubles.met("follow the region", error)
            await asyncio.sleep(self._pace.retry_seconds)

    async def _keep_reconciling(self) -> None:
        while True:
            await self._until_wanted()
            try:
                async with asyncio.timeout(self._pace.call_seconds * 2):
                    await self._reconcile()
                self._troubles.over("reconcile")
            except _TROUBLES as error:
                self._troubles.met("reconcile", error)
                self._needs_whole_read = True
                self._wanted.set()
                await asyncio.sleep(self._pace.retry_seconds)
            # A busy region changes all the time: what comes within a moment is read together.
            await asyncio.sleep(self._pace.gather_seconds)

    async def _until_wanted(self) -> None:
        """Something changed, or a stray ended: its node may register now."""
        waits = [
            asyncio.ensure_future(event.wait()) for event in (self._wanted, self._replicas.ended)
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._wanted.clear()
        self._replicas.ended.clear()

    async def _reconcile(self) -> None:
        """Reads, stops what was given away, registers, and only then starts anything new."""
        self._hosted = await self._nodes.refresh()
        self._drop_unhosted()
        homeless = self._without_session()
        # The epoch is read first: if it is raised before we register, registration is refused.
        epoch = (await read_region(self._databases, self._region)).epoch if homeless else 0
        await self._follow(is_whole=self._needs_whole_read or bool(homeless))
        waiting = self._replicas.nodes_with_strays()
        ready = [spec for spec in homeless if spec.id not in waiting]
        if ready:
            await self._membership.register(ready, epoch)
            # What was given away since the read above, and what these nodes shall start.
            await self._follow(is_whole=True)

    async def _follow(self, *, is_whole: bool) -> None:
        self._needs_whole_read = False
        named = list(self._hosted) if len(self._hosted) <= NAMED_AT_MOST else None
        since = 0 if is_whole else self._version
        version, found = await read_assignments(self._databases, self._region, named, since=since)
        mine = [assignment for assignment in found if assignment.node in self._hosted]
        await self._reconciler.apply(mine, is_whole=is_whole)
        self._version = version

    def _without_session(self) -> list[NodeSpec]:
        sessions = self._leases.sessions
        return [spec for node, spec in self._hosted.items() if node not in sessions]

    def _drop_unhosted(self) -> None:
        for node in [node for node in self._leases.sessions if node not in self._hosted]:
            self._leases.drop(node)
