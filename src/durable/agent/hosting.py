"""Hosts regions one agent at a time: whoever holds a region's agent lock simulates its nodes."""

import asyncio
import time
from collections.abc import Callable

from durable.agent.agent import Agent
from durable.agent.log import FailureLog, Log
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.agent_lock import AgentLock, hold_agent_lock, is_agent_lock_free
from durable.authority.fleet.regions import list_regions
from durable.ending import end_all
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError

REGIONS_CHECK_SECONDS = 2.0
LOCK_RETRY_SECONDS = 0.5
# How often in a row the lock must be found free before somebody else takes it.
FREE_CHECKS = 2


async def host_region(
    databases: Databases, region: RegionId, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Hosts a region until cancelled; refused if another agent already hosts it."""
    await _host(databases, region, agent_of, log)
    await _until_free(databases, region, log)
    await _stand_by(databases, region, agent_of, log)


async def _host(
    databases: Databases, region: RegionId, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Hosts a region until another agent takes over; refused if one already hosts it.

    If it loses its connection it hosts on and takes the lock again at once; those on standby leave
    it the time to. If another has taken the lock by then, its own agent ends: two would fight.
    """
    doing, failures = f"take the agent lock of {region}", FailureLog(log)
    running: asyncio.Task[None] | None = None
    lock: AgentLock | None = None
    try:
        while running is None or not running.done():
            tried_at = time.monotonic()
            try:
                async with hold_agent_lock(databases, region, lost=lock) as lock:
                    failures.recovered(doing)
                    if running is None:
                        log("hosting", region=region)
                        running = asyncio.create_task(agent_of(region).run())
                    await _until_one_ends(running, lock)
            except AuthorityError as error:
                failures.failed(doing, error)
            except RefusedError as error:
                if running is None:
                    raise
                failures.failed(doing, error)
                return
            # A lock that was held for a while is retried at once; only quick failures have to wait.
            await asyncio.sleep(tried_at + LOCK_RETRY_SECONDS - time.monotonic())
        await running
    finally:
        if running is not None:
            await end_all([running])


async def _until_one_ends(running: asyncio.Task[None], lock: AgentLock) -> None:
    """Raises why the lock was lost; the agent's own errors are left to its task."""
    lost = asyncio.create_task(lock.until_lost())
    try:
        await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_all([lost])
    if not lost.cancelled():
        lost.result()


async def host_every_region(
    databases: Databases, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Hosts each region as soon as it exists and nobody else does, until cancelled."""
    hosted: set[RegionId] = set()
    failures = FailureLog(log)
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                for region in await list_regions(databases):
                    if region not in hosted:
                        hosted.add(region)
                        tasks.create_task(_stand_by(databases, region, agent_of, log))
                failures.recovered("read the regions")
            except AuthorityError as error:
                failures.failed("read the regions", error)
            await asyncio.sleep(REGIONS_CHECK_SECONDS)


async def _stand_by(
    databases: Databases, region: RegionId, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Logs who hosts the region, and takes over once that agent has ended."""
    failures = FailureLog(log)
    while True:
        try:
            await _host(databases, region, agent_of, log)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.NODES_HOSTED:
                raise
            failures.failed(f"host {region}", error)
        await _until_free(databases, region, log)


async def _until_free(databases: Databases, region: RegionId, log: Log) -> None:
    """Until the lock was free twice in a row: a holder that only lost its connection retakes it."""
    doing, failures = f"check the agent lock of {region}", FailureLog(log)
    free = 0
    while free < FREE_CHECKS:
        await asyncio.sleep(REGIONS_CHECK_SECONDS)
        try:
            free = free + 1 if await is_agent_lock_free(databases, region) else 0
            failures.recovered(doing)
        except AuthorityError as error:
            free = 0
            failures.failed(doing, error)
