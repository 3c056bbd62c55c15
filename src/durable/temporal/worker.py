"""Workers: the global one runs workloads, a regional one the placements of its region."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio.client import Client
from temporalio.worker import PollerBehaviorAutoscaling, Worker

from durable.activities.drain import DrainActivities
from durable.activities.messages import AuthorizationActivities
from durable.activities.override import OverrideActivities
from durable.activities.placement import PlacementActivities
from durable.activities.policy import PolicyActivities
from durable.activities.recovery import RecoveryActivities
from durable.activities.workload import WorkloadActivities
from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityError
from durable.authority.fleet.regions import list_regions
from durable.authority.sides import GlobalSide, Regional
from durable.controllers.detection import DetectionController
from durable.controllers.node_life import NodeLifeController
from durable.controllers.quota import QuotaController
from durable.controllers.readiness import ReadinessController
from durable.controllers.reaper import ReaperController
from durable.controllers.reconciler import Reconciler
from durable.controllers.region_lease import LEASE_SECONDS, RegionLeaseController
from durable.controllers.statistics import StatisticsController
from durable.controllers.status import StatusController
from durable.controllers.wakeups import WakeupController
from durable.controllers.watch import WatchController
from durable.ending import end_all
from durable.model.ids import RegionId
from durable.signals.names import GLOBAL_QUEUE, regional_queue
from durable.temporal.query_loads import forget_query_loads
from durable.temporal.recoveries import begin_recovery
from durable.temporal.running import unserved_if_known
from durable.temporal.sandbox import sandbox
from durable.workflows.drain.workflow import DrainWorkflow
from durable.workflows.override.workflow import OverrideWorkflow
from durable.workflows.placement.workflow import Placement
from durable.workflows.policy.workflow import PolicyWorkflow
from durable.workflows.recovery.workflow import RecoveryWorkflow
from durable.workflows.workload.workflow import Workload

log = logging.getLogger(__name__)

# How long steps in progress may take to end; after that they are cancelled.
DRAIN = timedelta(seconds=25)
# After a crash another worker takes over within seconds; the SDK's own default is ten.
STICKY_TIMEOUT = timedelta(seconds=3)
CACHED_WORKFLOWS = 2_000
# What waits for a task is served in a fair order, and what is in one is not. With sixty at
# once each lasted for seconds in a burst, and a small tenant waited for all of them.
MAX_WORKFLOW_TASKS = 20
# The SDK interrupts a task that has not yielded for two seconds. On a busy machine that is one that
# waits for a CPU, and a workflow that was interrupted while it took in signals is never evicted:
# its slot is lost, and the worker does not end. The server gives up a task soon enough.
STALLED_TASK_SECONDS = 60
REGIONS_POLL_SECONDS = 1.0
READY_SECONDS = 60.0
CONTROLLER_RETRY_SECONDS = 1.0


def waiting_starts(workflow_tasks: int) -> int:
    """How many steps may wait for what they started: each holds a slot for a workflow task.

    A quarter is left to all others, and always at least one.
    """
    return workflow_tasks * 3 // 4


def collect_garbage_rarely() -> None:
    """Leaves what is loaded out of collections, and makes them rarer.

    At the interpreter's own pace a regional worker spends a fifth of its time collecting.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _worker(
    client: Client,
    queue: str,
    workflows: Sequence[type[Any]],
    activities: Sequence[Callable[..., Any]],
    drain: timedelta,
) -> Worker:
    worker = Worker(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=activities,
        workflow_runner=sandbox(),
        workflow_task_poller_behavior=PollerBehaviorAutoscaling(initial=5, maximum=40),
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        graceful_shutdown_timeout=drain,
        max_concurrent_workflow_tasks=MAX_WORKFLOW_TASKS,
        max_cached_workflows=CACHED_WORKFLOWS,
    )
    return forget_query_loads(patient(worker), client)


def patient(worker: Worker) -> Worker:
    """The SDK has no option for it but one that also changes how workflows run."""
    tasks: Any = worker._workflow_worker  # pyright: ignore[reportPrivateUsage]
    if tasks._deadlock_timeout_seconds is not None:  # or it is being debugged
        tasks._deadlock_timeout_seconds = STALLED_TASK_SECONDS
    return worker


@asynccontextmanager
async def global_worker(
    client: Client,
    databases: Databases,
    *,
    drain: timedelta = DRAIN,
    lease_seconds: float = LEASE_SECONDS,
) -> AsyncGenerator[None]:
    """Serves workloads for as long as the context lasts; leaving it drains."""
    async with GlobalSide(databases) as side:
        activities = (
            *WorkloadActivities(side, client).all,
            *PolicyActivities(databases, client).all,
            *RecoveryActivities(databases, client).all,
            *AuthorizationActivities(databases).all,
            *OverrideActivities(databases, client).all,
        )
        detection = DetectionController(
            databases,
            partial(unserved_if_known, client),
            partial(begin_recovery, client),
            lease_seconds,
        )
        controllers = (
            detection,
            ReadinessController(databases, client),
            QuotaController(databases),
            Reconciler(client, databases),
        )
        async with (
            _worker(
                client,
                GLOBAL_QUEUE,
                [Workload, OverrideWorkflow, PolicyWorkflow, RecoveryWorkflow],
                activities,
                drain,
            ),
            _running([_keep_running(controller.run) for controller in controllers]),
        ):
            log.info("serving workloads and overrides")
            yield


@asynccontextmanager
async def regional_worker(
    client: Client,
    databases: Databases,
    region: RegionId,
    *,
    drain: timedelta = DRAIN,
    lease_seconds: float = LEASE_SECONDS,
) -> AsyncGenerator[None]:
    """Serves one region's placements for as long as the context lasts; leaving it drains."""
    waiters = waiting_starts(MAX_WORKFLOW_TASKS)
    async with Regional(databases, region, max_waiters=waiters) as regional:
        lease = RegionLeaseController(regional, lease_seconds)
        await lease.begin()
        await regional.cache.wait_ready(READY_SECONDS)
        activities = (
            *PlacementActivities(regional).all,
            *DrainActivities(regional, client).all,
            *AuthorizationActivities(databases).all,
        )
        controllers = (
            StatusController(regional, client),
            WakeupController(regional, client),
            StatisticsController(regional),
            ReaperController(regional),
            WatchController(regional),
            lease,
            NodeLifeController(regional),
        )
        async with (
            _worker(client, regional_queue(region), [Placement, DrainWorkflow], activities, drain),
            _running([_keep_running(controller.run) for controller in controllers]),
        ):
            log.info("serving placements of %s", region)
            yield


async def _keep_running(controller: Callable[[], Awaitable[None]]) -> None:
    """Restarts a controller that failed in a way that was not foreseen, and logs why."""
    while True:
        try:
            await controller()
        except Exception:
            log.exception("a controller failed and is restarted")
        await asyncio.sleep(CONTROLLER_RETRY_SECONDS)


@asynccontextmanager
async def _running(controllers: Sequence[Awaitable[None]]) -> AsyncGenerator[None]:
    tasks = [asyncio.ensure_future(controller) for controller in controllers]
    try:
        yield
    finally:
        await end_all(tasks)


async def serve_every_region(
    client: Client,
    databases: Databases,
    stop: asyncio.Event,
    announce: Callable[[str], None],
    *,
    drain: timedelta = DRAIN,
    lease_seconds: float = LEASE_SECONDS,
) -> None:
    """Serves every region there is, those that are added later too, until asked to stop."""
    serving: dict[RegionId, asyncio.Task[None]] = {}
    try:
        while not stop.is_set():
            with contextlib.suppress(AuthorityError):
                for region in await list_regions(databases):
                    if region not in serving or serving[region].done():
                        serving[region] = asyncio.create_task(
                            _serve_until(
                                regional_worker(
                                    client,
                                    databases,
                                    region,
                                    drain=drain,
                                    lease_seconds=lease_seconds,
                                ),
                                stop,
                            )
                        )
                        announce(f"serving placements of {region}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REGIONS_POLL_SECONDS):
                    await stop.wait()
    finally:
        await asyncio.gather(*serving.values(), return_exceptions=True)


async def _serve_until(worker: Any, stop: asyncio.Event) -> None:
    try:
        async with worker:
            await stop.wait()
    except Exception:
        log.exception("a regional worker ended and is restarted")
