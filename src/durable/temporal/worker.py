"""Workers: the global one keeps workloads, a regional one keeps the placements of its region."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from durable.activities.placement import PlacementActivities
from durable.activities.workload import WorkloadActivities
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import list_regions
from durable.authority.global_side import GlobalSide
from durable.authority.regional import Regional
from durable.controllers.quota import QuotaController
from durable.controllers.statistics import StatisticsKeeper
from durable.controllers.status import StatusController
from durable.controllers.wakeups import WakeupController
from durable.model.ids import RegionId
from durable.signals.names import GLOBAL_QUEUE, regional_queue
from durable.temporal.sandbox import sandbox
from durable.workflows.placement.workflow import Placement
from durable.workflows.workload.workflow import Workload

log = logging.getLogger(__name__)

GRACEFUL_STOP = timedelta(seconds=30)
# After a crash another worker takes over within seconds; the SDK's own default is ten.
STICKY_TIMEOUT = timedelta(seconds=3)
CACHED_WORKFLOWS = 2_000
# More at once share the same time, until all of them run into their timeout and are done again.
TASKS_AT_ONCE = 60
REGIONS_EVERY_SECONDS = 1.0
READY_SECONDS = 60.0
DUTY_AGAIN_SECONDS = 1.0


def collect_rarely() -> None:
    """What is loaded stays, so it is not looked through again; the rest is, in larger portions.

    At the interpreter's own pace a regional worker spends a fifth of its time looking for garbage
    among its caches.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _worker(
    client: Client,
    queue: str,
    workflows: Sequence[type[Any]],
    activities: Sequence[Callable[..., Any]],
) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=activities,
        workflow_runner=sandbox(),
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(initial=5, maximum=40),
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        graceful_shutdown_timeout=GRACEFUL_STOP,
        max_concurrent_workflow_tasks=TASKS_AT_ONCE,
        max_cached_workflows=CACHED_WORKFLOWS,
    )


@asynccontextmanager
async def global_worker(client: Client, databases: Databases) -> AsyncGenerator[None]:
    """Serves workloads for as long as the context lasts; leaving it drains."""
    async with GlobalSide(databases) as side:
        activities = WorkloadActivities(side, client)
        async with (
            _worker(client, GLOBAL_QUEUE, [Workload], activities.all),
            _running([_kept_up(QuotaController(databases).run)]),
        ):
            log.info("serving workloads")
            yield


@asynccontextmanager
async def regional_worker(
    client: Client, databases: Databases, region: RegionId
) -> AsyncGenerator[None]:
    """Serves one region's placements for as long as the context lasts; leaving it drains."""
    async with Regional(databases, region) as regional:
        await regional.cache.wait_ready(READY_SECONDS)
        activities = PlacementActivities(regional)
        duties = (
            StatusController(regional, client),
            WakeupController(regional, client),
            StatisticsKeeper(regional),
        )
        async with (
            _worker(client, regional_queue(region), [Placement], activities.all),
            _running([_kept_up(duty.run) for duty in duties]),
        ):
            log.info("serving placements of %s", region)
            yield


async def _kept_up(duty: Callable[[], Awaitable[None]]) -> None:
    """A duty that fails in a way nobody foresaw is begun again, and its log says why."""
    while True:
        try:
            await duty()
        except Exception:
            log.exception("a duty failed; it is begun again")
        await asyncio.sleep(DUTY_AGAIN_SECONDS)


@asynccontextmanager
async def _running(duties: Sequence[Awaitable[None]]) -> AsyncGenerator[None]:
    tasks = [asyncio.ensure_future(duty) for duty in duties]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def serve_every_region(
    client: Client, databases: Databases, stop: asyncio.Event, announce: Callable[[str], None]
) -> None:
    """Serves every region there is, those that are added later too, until asked to stop."""
    serving: dict[RegionId, asyncio.Task[None]] = {}
    try:
        while not stop.is_set():
            with contextlib.suppress(AuthorityError):
                for region in await list_regions(databases):
                    if region not in serving or serving[region].done():
                        serving[region] = asyncio.create_task(
                            _serve_until(regional_worker(client, databases, region), stop)
                        )
                        announce(f"serving placements of {region}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), REGIONS_EVERY_SECONDS)
    finally:
        await asyncio.gather(*serving.values(), return_exceptions=True)


async def _serve_until(worker: Any, stop: asyncio.Event) -> None:
    try:
        async with worker:
            await stop.wait()
    except Exception:
        log.exception("a regional worker ended; it is started again")
