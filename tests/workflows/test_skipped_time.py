"""Waits of minutes and hours, on clocks of workflows that are put forward.

Only a workflow that a test puts forward leaves the hour of everybody else, and Postgres never does:
leases, reservations and agents live in real time throughout.
"""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.testing import TimeSkippingConfig, WorkflowEnvironment

from durable.agent.agent import SIMULATED_HOST
from durable.agent.nodes import DeclaredNodes
from durable.authority.fleet.node_sessions import register_nodes
from durable.authority.fleet.regions import read_region
from durable.authority.queue.decisions import read_decisions
from durable.authority.queue.requests import read_request
from durable.model.ids import TenantId, WorkloadName
from durable.model.placement.pending_reasons import PendingCode
from durable.model.placement.request import SchedulingRequest
from durable.model.states import RequestState
from durable.model.work.phases import Owner, SlotPhase
from durable.scheduling.policies import first_policy
from durable.settings import Settings
from durable.signals.names import GLOBAL_QUEUE, WORKLOAD, workload_id
from durable.signals.search_attributes import SEARCH_ATTRIBUTES
from durable.signals.status import SlotView
from durable.stack.temporal_server import DYNAMIC_CONFIG, temporal_binary
from durable.workflows import timeouts
from durable.workflows.workload.state import WorkloadStart
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until

RISK, API = TenantId("risk"), WorkloadName("api")
# Two of them do not fit on one node of four cores.
LARGE = {"cpu": "2500m", "memory": "256Mi"}
MINUTE = timedelta(minutes=1)
# What may pass by itself while a test looks: a clock that was put forward goes on from there.
A_MOMENT = timedelta(seconds=30)
LONG_LEASE_SECONDS = 3_600
SERVER = {
    **DYNAMIC_CONFIG,
    "frontend.WorkflowTimeSkippingEnabled": "true",
    # How far off a timer is looked at; the default of a second is lost at every skip.
    "history.timerProcessorMaxTimeShift": '"10ms"',
}


@pytest.fixture
async def clocks() -> AsyncIterator[WorkflowEnvironment]:
    """A Temporal server that can put workflows forward; until a test asks, none is."""
    environment = await WorkflowEnvironment.start_time_skipping_v2(
        ts_config=TimeSkippingConfig(enabled=False),
        search_attributes=SEARCH_ATTRIBUTES,
        dev_server_existing_path=temporal_binary(),
        dev_server_log_level="error",
        dev_server_extra_args=[
            f"--dynamic-config-value={key}={value}" for key, value in SERVER.items()
        ],
        dev_server_startup_timeout=timedelta(seconds=30),
    )
    async with environment:
        yield environment


@pytest.fixture
async def plane(
    clocks: WorkflowEnvironment, new_database: Callable[[], str], tmp_path: Path
) -> AsyncIterator[Plane]:
    settings = Settings(
        state_dir=tmp_path,
        database_url=new_database(),
        temporal_address=clocks.client.service_client.config.target_host,
        temporal_namespace=clocks.client.namespace,
    )
    made = await Plane.make(settings, tmp_path / "faults.yaml")
    try:
        yield made
    finally:
        await made.close()


async def test_a_workload_that_nobody_applies_to_ends_by_itself(
    plane: Plane, clocks: WorkflowEnvironment
) -> None:
    await (await plane.load()).work()
    handle: WorkflowHandle[object, object] = await plane.durable.client.start_workflow(
        WORKLOAD,
        WorkloadStart(RISK, API),
        id=workload_id(RISK, API),
        task_queue=GLOBAL_QUEUE,
    )

    assert await clocks.fast_forward(handle, timeouts.FIRST_APPLY - A_MOMENT)
    assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING

    assert not await clocks.fast_forward(handle, 2 * A_MOMENT), "it ended on the way"
    assert await handle.result() is None


async def test_a_placement_without_room_is_decided_again_ever_more_rarely_and_late_in_the_end(
    plane: Plane, clocks: WorkflowEnvironment
) -> None:
    await (await (await plane.load(small_fleet(nodes=2, cpu=4))).host()).work()
    await plane.durable.apply(manifest(replicas=3, resources=LARGE, deadlines={"placed": "1h"}))
    await until(lambda: waits_for_room(plane), "the third finds no room")
    begun = await plane.placement()

    await clocks.fast_forward(plane.handle(), 55 * MINUTE)
    early, request = await plane.placement(), await queued(plane)
    assert request.state is RequestState.PENDING
    assert early.attempts <= begun.attempts + 1, "one more that found what is left, then the same"
    repeats = await repeated(plane)
    assert repeats >= 10

    await clocks.fast_forward(plane.handle(), 10 * MINUTE)
    late, request = await plane.placement(), await queued(plane)
    assert request.state is RequestState.TIMED_OUT
    assert request.deadline == late.placed_by == begun.placed_by
    assert await repeated(plane) > repeats
    assert late.pending is not None
    assert (late.pending.code, late.owner) == (PendingCode.CAPACITY, Owner.SCHEDULER)
    assert request.pending == late.pending

    grew_to_the_limit(await rests(plane))
    await plane.no_invariant_is_broken()


async def test_a_late_placement_is_still_placed_when_room_appears(
    plane: Plane, clocks: WorkflowEnvironment
) -> None:
    await (await (await plane.load(small_fleet(nodes=2, cpu=4))).host()).work()
    await plane.durable.apply(manifest("first", replicas=2, resources=LARGE))
    await plane.durable.wait("risk", "first")
    await plane.durable.apply(manifest(replicas=1, resources=LARGE, deadlines={"placed": "5m"}))
    await until(lambda: waits_for_room(plane), "it finds no room beside them")
    await clocks.fast_forward(plane.handle(), 10 * MINUTE)
    assert (await queued(plane)).state is RequestState.TIMED_OUT

    await plane.durable.delete("risk", "first")

    assert (await plane.durable.wait("risk", "api", within_seconds=180)).serving == 1
    assert (await queued(plane)).state is RequestState.PLACED
    await plane.no_invariant_is_broken()


async def test_a_slot_that_nobody_starts_is_given_up_there_at_its_deadline_and_placed_elsewhere(
    plane: Plane, clocks: WorkflowEnvironment
) -> None:
    await plane.load(small_fleet(nodes=2))
    await lease_nodes_without_an_agent(plane)
    await plane.work()
    await plane.durable.apply(manifest(replicas=1, deadlines={"started": "2m"}))
    await until(lambda: is_in(plane, SlotPhase.STARTING), "its node is asked to start it")
    first = await only_slot(plane)

    await clocks.fast_forward(plane.handle(), 2 * MINUTE - A_MOMENT)
    assert await is_in(plane, SlotPhase.STARTING)
    await clocks.fast_forward(plane.handle(), 2 * A_MOMENT)
    await until(lambda: is_in(plane, SlotPhase.STOPPING), "its deadline is noticed")
    assert (await only_slot(plane)).evidence == f"did not start on {first.node} in time"

    # Its node has a lease and may have started it unseen: until it answers, it is placed nowhere.
    await clocks.fast_forward(plane.handle(), 5 * MINUTE)
    assert await is_in(plane, SlotPhase.STOPPING)
    assert [binding.token for binding in (await plane.bindings()).values()] == [first.token]

    await plane.host()
    assert (await plane.durable.wait("risk", "api", within_seconds=180)).serving == 1
    (binding,) = (await plane.bindings()).values()
    assert binding.node != first.node
    await plane.no_invariant_is_broken()


async def waits_for_room(plane: Plane) -> bool:
    pending = (await plane.placement()).pending
    return pending is not None and pending.code is PendingCode.CAPACITY


async def is_in(plane: Plane, phase: SlotPhase) -> bool:
    return (await only_slot(plane)).phase is phase


async def only_slot(plane: Plane) -> SlotView:
    (slot,) = (await plane.placement()).slots
    return slot


async def queued(plane: Plane) -> SchedulingRequest:
    found = await read_request(plane.databases, EAST, RISK, API, 1)
    assert found is not None
    return found


async def repeated(plane: Plane) -> int:
    """How often its last decision was made again."""
    return (await read_decisions(plane.databases, EAST, RISK, API))[-1].repeats


async def rests(plane: Plane) -> list[float]:
    """How many seconds the placement rested each time, by the timers that came to their end."""
    started: dict[str, float] = {}
    ended: list[float] = []
    async for event in plane.handle().fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            timer = event.timer_started_event_attributes
            started[timer.timer_id] = timer.start_to_fire_timeout.ToTimedelta().total_seconds()
        elif event.event_type == EventType.EVENT_TYPE_TIMER_FIRED:
            ended.append(started[event.timer_fired_event_attributes.timer_id])
    return ended


def grew_to_the_limit(seconds: list[float]) -> None:
    """Each of the first is longer than the one before, whatever the jitter."""
    policy = first_policy()
    assert seconds[0] < policy.retry_longest_seconds / 4
    assert all(later > before for before, later in pairwise(seconds[:8])), seconds
    assert policy.retry_longest_seconds * 0.7 < max(seconds) <= policy.retry_longest_seconds


async def lease_nodes_without_an_agent(plane: Plane) -> None:
    nodes = await DeclaredNodes(plane.databases, EAST).refresh()
    await register_nodes(
        plane.databases,
        EAST,
        list(nodes.values()),
        epoch=(await read_region(plane.databases, EAST)).epoch,
        lease_ttl_seconds=LONG_LEASE_SECONDS,
        host=SIMULATED_HOST,
    )
