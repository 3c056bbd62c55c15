"""What comes up at once needs no message; what takes longer is reported by one."""

import contextlib
from collections import Counter
from typing import Any

import pytest
from temporalio.service import RPCError

from durable.activities import placement as steps
from durable.model.ids import TenantId, WorkloadName
from durable.signals.names import workload_id
from tests.workflows.plane import Plane, manifest, until

RISK, API = TenantId("risk"), WorkloadName("api")


async def with_nodes_that_answer(plane: Plane) -> None:
    await (await (await plane.load()).host()).work()
    await plane.durable.place(manifest("first", replicas=1), request_id="first")


async def serves(plane: Plane) -> bool:
    with contextlib.suppress(RPCError):  # it is not there yet
        return (await plane.placement()).phase == "serving"
    return False


async def history_of(plane: Plane, handle: Any = None) -> Counter[str]:
    """How often each signal, and each other kind of event, is in the history; the placement's."""
    kinds: Counter[str] = Counter()
    async for event in (handle or plane.handle()).fetch_history_events():
        kind = event.WhichOneof("attributes").removesuffix("_event_attributes")
        if kind == "workflow_execution_signaled":
            kind = event.workflow_execution_signaled_event_attributes.signal_name
        kinds[kind] += 1
    return kinds


async def test_a_start_that_comes_up_at_once_is_one_task_and_no_message(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "COME_UP_SECONDS", 30.0)
    await with_nodes_that_answer(plane)

    await plane.durable.apply(manifest(replicas=3), request_id="one")
    await until(lambda: serves(plane), "its placement knows that it serves")

    happened = await history_of(plane)
    assert happened["workflow_task_completed"] == 1
    assert happened["look"] == happened["timer_started"] == 0
    assert happened["marker_recorded"] == 4, "recall, reserve, bind, start"
    workload = plane.durable.client.get_workflow_handle(workload_id(RISK, API))
    assert (await history_of(plane, workload))["marker_recorded"] == 2, "admit, divide"
    await plane.no_invariant_is_broken()


async def test_a_start_that_takes_longer_is_reported_by_a_signal(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "COME_UP_SECONDS", 0.0)
    await with_nodes_that_answer(plane)

    await plane.durable.apply(manifest(replicas=3), request_id="one")
    await until(lambda: serves(plane), "its placement knows that it serves")

    assert (await history_of(plane))["look"] >= 1
    await plane.no_invariant_is_broken()
