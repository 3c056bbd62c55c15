"""Which nodes an agent hosts: one that describes itself, or all that a region declares."""

import asyncio
import time
from collections.abc import Callable, Mapping

from durable.agent.agent import Agent
from durable.agent.log import Log, Troubles
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.agent_lock import AgentLock, hold_agent_lock, is_agent_lock_free
from durable.authority.fleet.node_reads import read_declared_nodes
from durable.authority.fleet.regions import list_regions
from durable.model.ids import NodeId, RegionId
from durable.model.labels import LabelKey, LabelValue
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.regions import NodeSpec

DRIVER = LabelKey("driver")
PROCESS = LabelValue("process")
REGIONS_CHECK_SECONDS = 2.0
LOCK_RETRY_SECONDS = 0.5
VACANT_LOOKS = 2


class OwnNode:
    """The one node that is this machine."""

    def __init__(self, spec: NodeSpec) -> None:
        self._nodes = {spec.id: spec}

    async def refresh(self) -> Mapping[NodeId, NodeSpec]:
        return self._nodes


class DeclaredNodes:
    """Every declared node of a region that no agent of its own stands for, as it is now."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases = databases
        self._region = region
        self._version = 0
        self._nodes: dict[NodeId, NodeSpec] = {}

    async def refresh(self) -> Mapping[NodeId, NodeSpec]:
        version, changed, removed = await read_declared_nodes(
            self._databases, self._region, since=self._version
        )
        for spec in changed:
            if spec.labels.get(DRIVER) == PROCESS:
                self._nodes.pop(spec.id, None)
            else:
                self._nodes[spec.id] = spec
        for node in removed:
            self._nodes.pop(node, None)
        self._version = version
        return self._nodes


async def host_region(
    databases: Databases, region: RegionId, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Hosts a region until cancelled; refused if another agent does when it begins."""
    await _host(databases, region, agent_of, log)
    await _until_vacant(databases, region, log)
    await _stand_by(databases, region, agent_of, log)


async def _host(
    databases: Databases, region: RegionId, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Hosts a region until another agent does; refused if one does already.

    Cut off from the database it goes on, and takes its lock again at once; who stands by leaves it
    the time to. If another has the agent lock nonetheless, its own agent ends: two would fight.
    """
    doing, troubles = f"take the agent lock of {region}", Troubles(log)
    running: asyncio.Task[None] | None = None
    lock: AgentLock | None = None
    try:
        while running is None or not running.done():
            tried_at = time.monotonic()
            try:
                async with hold_agent_lock(databases, region, lost=lock) as lock:
                    troubles.over(doing)
                    if running is None:
                        log("hosting", region=region)
                        running = asyncio.create_task(agent_of(region).run())
                    await _until_one_ends(running, lock)
            except AuthorityError as error:
                troubles.met(doing, error)
            except RefusedError as error:
                if running is None:
                    raise
                troubles.met(doing, error)
                return
            # Held for a while, it is tried again at once; only what fails at once has to wait.
            await asyncio.sleep(tried_at + LOCK_RETRY_SECONDS - time.monotonic())
        await running
    finally:
        if running is not None:
            running.cancel()
            await asyncio.wait({running})


async def _until_one_ends(running: asyncio.Task[None], lock: AgentLock) -> None:
    """Raises why the agent lock was lost; the agent's own errors are not told here."""
    lost = asyncio.create_task(lock.until_lost())
    try:
        await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        lost.cancel()
        await asyncio.wait({lost})
    if not lost.cancelled():
        lost.result()


async def host_every_region(
    databases: Databases, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Hosts each region from when it appears and nobody else does, until cancelled."""
    hosted: set[RegionId] = set()
    troubles = Troubles(log)
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                for region in await list_regions(databases):
                    if region not in hosted:
                        hosted.add(region)
                        tasks.create_task(_stand_by(databases, region, agent_of, log))
                troubles.over("read the regions")
            except AuthorityError as error:
                troubles.met("read the regions", error)
            await asyncio.sleep(REGIONS_CHECK_SECONDS)


async def _stand_by(
    databases: Databases, region: RegionId, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Says who hosts the region, and takes over when that agent ended."""
    troubles = Troubles(log)
    while True:
        try:
            await _host(databases, region, agent_of, log)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.NODES_HOSTED:
                raise
            troubles.met(f"host {region}", error)
        await _until_vacant(databases, region, log)


async def _until_vacant(databases: Databases, region: RegionId, log: Log) -> None:
    """Until nobody had the lock twice: who only lost a connection took it again in between."""
    doing, troubles = f"look at the agent lock of {region}", Troubles(log)
    vacant = 0
    while vacant < VACANT_LOOKS:
        await asyncio.sleep(REGIONS_CHECK_SECONDS)
        try:
            vacant = vacant + 1 if await is_agent_lock_free(databases, region) else 0
            troubles.over(doing)
        except AuthorityError as error:
            vacant = 0
            troubles.met(doing, error)
