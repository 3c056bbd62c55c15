"""The loop of an agent: follow the region, run what it assigns, report what is seen, keep leases.

An agent never trusts what it last read for longer than its lease: cut off, it stops the replicas
whose `on_disconnect` is `stop`; reconnected, it first reads what the region assigns, stops what was
moved elsewhere, and only then begins a new session, in which it reports everything again.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

from durable.agent.driver import Driver
from durable.agent.leases import Leases, Timing, boot_seconds
from durable.agent.log import FailureLog, Log
from durable.agent.nodes import HostedNodes
from durable.agent.reconciler import ReplicaReconciler
from durable.agent.replicas import Replicas
from durable.agent.reporter import Reporter
from durable.agent.sessions import NodeSessions
from durable.authority.cache.watch import watch
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.assignments import read_assignments
from durable.authority.fleet.devices import report_unhealthy_devices
from durable.authority.fleet.regions import read_region
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import ActorId, DeviceId, NodeId, RegionId
from durable.model.refusal import RefusedError

# An agent of few nodes names them in each read; one of many reads all and picks its own.
MAX_NAMED_NODES = 100

# All who simulate a region are one host to it: the agent lock lets only one of them work.
SIMULATED_HOST = "the agent of simulated nodes"

_FAILURES = (AuthorityError, RefusedError, TimeoutError)


class Agent:
    """Hosts nodes of one region with one driver."""

    def __init__(
        self,
        databases: Databases,
        region: RegionId,
        nodes: HostedNodes,
        driver: Driver,
        *,
        name: ActorId,
        log: Log,
        timing: Timing | None = None,
        logs_each: bool = True,
        leases: Leases | None = None,
        host: str = SIMULATED_HOST,
        clock: Callable[[], float] = boot_seconds,
        is_cut_off: Callable[[NodeSpec], bool] = lambda _: False,
        unhealthy_devices: Callable[[NodeSpec], frozenset[DeviceId]] = lambda _: frozenset(),
    ) -> None:
        timing = timing or Timing()
        self._databases = databases
        self._region = region
        self._nodes = nodes
        self._driver = driver
        self._timing = timing
        self._log = log
        self._failures = FailureLog(log)
        self._leases = leases or Leases(timing.trusted_seconds)
        self._replicas = Replicas(log, logs_each=logs_each)
        self._reconciler = ReplicaReconciler(driver, self._replicas, self._leases, clock)
        self._sessions = NodeSessions(
            databases, region, self._leases, self._replicas, driver, timing, clock, log, host
        )
        self._reporter = Reporter(
            databases, region, name, self._replicas, self._leases, self._reconciler, timing, log
        )
        self._is_cut_off = is_cut_off
        self._unhealthy_devices = unhealthy_devices
        # As they were last reported.
        self._reported_devices: dict[NodeId, frozenset[DeviceId]] = {}
        self._hosted: Mapping[NodeId, NodeSpec] = {}
        # Of those, the ones that reach nobody: what runs there is left alone until the lease ends.
        self._cut_off: frozenset[NodeId] = frozenset()
        self._version = 0
        self._needs_whole_read = True
        self._due = asyncio.Event()
        self._due.set()

    async def run(self) -> None:
        """Runs until cancelled; the driver decides whether its replicas run on."""
        try:
            for assignment in await self._driver.adopt(self._replicas.record):
                self._replicas.add(assignment)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sessions.keep_fencing(self._due))
                tasks.create_task(self._sessions.keep_renewing(self._due))
                tasks.create_task(self._reporter.run(self._due))
                tasks.create_task(self._listen())
                tasks.create_task(self._keep_reconciling())
        finally:
            await self._driver.close()

    def look(self) -> None:
        """Has it look at once which nodes it hosts, and what they are to run."""
        self._due.set()

    async def _listen(self) -> None:
        address = self._databases.url_of(self._region)
        regions = frozenset({self._region})
        while True:
            try:
                changes = watch(address, regions, resync_seconds=self._timing.resync_seconds)
                async with aclosing(changes):
                    async for change in changes:
                        self._needs_whole_read |= change.is_resync
                        self._due.set()
                        self._failures.recovered("follow the region")
            # Whatever it was: an agent that ends here would take its nodes' leases with it.
            except Exception as error:
                self._failures.failed("follow the region", error)
            await asyncio.sleep(self._timing.retry_seconds)

    async def _keep_reconciling(self) -> None:
        while True:
            await self._until_due()
            try:
                async with asyncio.timeout(self._timing.call_seconds * 2):
                    await self._reconcile()
                self._failures.recovered("reconcile")
            except _FAILURES as error:
                self._failures.failed("reconcile", error)
                self._needs_whole_read = True
                self._due.set()
                await asyncio.sleep(self._timing.retry_seconds)
            # A busy region changes all the time: changes within a moment are read together.
            await asyncio.sleep(self._timing.gather_seconds)

    async def _until_due(self) -> None:
        """Until something changed, or a stray replica ended and its node may register."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._due, self._replicas.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._due.clear()
        self._replicas.ended.clear()

    async def _reconcile(self) -> None:
        """Reads, stops what was moved elsewhere, registers, and only then starts anything new."""
        self._hosted = await self._nodes.refresh()
        self._drop_unhosted()
        self._cut_off = frozenset(
            node for node, spec in self._hosted.items() if self._is_cut_off(spec)
        )
        for node, session in list(self._leases.sessions.items()):
            if node in self._cut_off:
                self._leases.end_session(node, session)
        unregistered = self._without_session()
        # The epoch is read first: if it is raised before we register, the registration is refused.
        epoch = (await read_region(self._databases, self._region)).epoch if unregistered else 0
        is_whole = self._needs_whole_read or self._reconciler.needs_whole_read
        await self._follow(is_whole=is_whole or bool(unregistered))
        blocked = self._replicas.nodes_with_strays()
        ready = [spec for spec in unregistered if spec.id not in blocked]
        if ready:
            await self._sessions.register(ready, epoch)
            # What was moved elsewhere since the read above, and what these nodes must start.
            await self._follow(is_whole=True)
        await self._report_devices()

    async def _report_devices(self) -> None:
        """Of nodes with devices and a session, where something is new."""
        now = {
            node: self._unhealthy_devices(spec)
            for node, spec in self._hosted.items()
            if spec.devices and node in self._leases.sessions
        }
        changed = {
            node: devices
            for node, devices in now.items()
            if self._reported_devices.get(node) != devices
        }
        if changed:
            await report_unhealthy_devices(self._databases, self._region, changed)
        # One without a session is reported again when it has one: meanwhile another agent may.
        self._reported_devices = now

    async def _follow(self, *, is_whole: bool) -> None:
        self._needs_whole_read = False
        named = list(self._hosted) if len(self._hosted) <= MAX_NAMED_NODES else None
        since = 0 if is_whole else self._version
        version, found = await read_assignments(self._databases, self._region, named, since=since)
        reached = self._hosted.keys() - self._cut_off
        mine = [assignment for assignment in found if assignment.node in reached]
        await self._reconciler.apply(mine, is_whole=is_whole, cut_off=self._cut_off)
        self._version = version

    def _without_session(self) -> list[NodeSpec]:
        known = self._leases.sessions.keys() | self._cut_off
        return [spec for node, spec in self._hosted.items() if node not in known]

    def _drop_unhosted(self) -> None:
        for node in [node for node in self._leases.sessions if node not in self._hosted]:
            self._leases.drop(node)
