"""What comes up at once needs no message; what takes longer is reported by one."""

import contextlib
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from temporalio.service import RPCError

from durable.activities import placement as steps
from durable.controllers.status import has_news
from durable.model.ids import NodeId, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot
from durable.model.states import BindingState
from durable.signals import starting
from durable.signals.names import workload_id
from tests.workflows.plane import Plane, manifest, until

RISK, API = TenantId("risk"), WorkloadName("api")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that takes longer than this is cut in two, however much a busy machine had to do."""
    monkeypatch.setattr(starting, "WORKFLOW_TASK_TIMEOUT", timedelta(minutes=2))


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
    monkeypatch.setattr(steps, "EFFECT_SECONDS", 30.0)
    await with_nodes_that_answer(plane)

    await plane.durable.apply(manifest(replicas=3), request_id="one")
    await until(lambda: serves(plane), "its placement knows that it serves")

    happened = await history_of(plane)
    assert happened["workflow_task_completed"] == 1, happened
    assert happened["look"] == happened["timer_started"] == 0
    assert happened["marker_recorded"] == 4, "recall, reserve, bind, start"
    workload = plane.durable.client.get_workflow_handle(workload_id(RISK, API))
    assert (await history_of(plane, workload))["marker_recorded"] == 2, "admit, divide"
    await plane.no_invariant_is_broken()


async def test_a_start_that_takes_longer_is_reported_by_a_signal(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "EFFECT_SECONDS", 0.0)
    await with_nodes_that_answer(plane)

    await plane.durable.apply(manifest(replicas=3), request_id="one")
    await until(lambda: serves(plane), "its placement knows that it serves")

    assert (await history_of(plane))["look"] >= 1
    await plane.no_invariant_is_broken()


async def test_a_stop_that_ends_at_once_is_released_in_the_same_task(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "EFFECT_SECONDS", 30.0)
    await with_nodes_that_answer(plane)
    await plane.durable.apply(manifest(replicas=3), request_id="one")
    await until(lambda: serves(plane), "its placement knows that it serves")

    await plane.durable.scale("risk", "api", 1, request_id="two")

    async def is_scaled() -> bool:
        return len((await plane.placement()).slots) == 1

    await until(is_scaled, "two slots are gone")
    happened = await history_of(plane)
    assert happened["look"] == 1, "its share changed, and the rest it did itself"
    assert happened["workflow_task_completed"] == 2
    assert happened["marker_recorded"] == 8, "recall, stop, release, enqueue after the first four"
    await plane.no_invariant_is_broken()


EAST_1 = NodeId("east-1")


def observed(token: int, state: BindingState, **values: Any) -> ObservedSlot:
    return ObservedSlot(slot=token, token=token, attempt=1, node=EAST_1, state=state, **values)


UP = observed(1, BindingState.SERVING)


@pytest.mark.parametrize(
    ("reported", "now", "is_news"),
    [
        ((UP,), (UP,), False),
        ((UP,), (observed(1, BindingState.SERVING, stop_requested=True),), False),
        ((UP,), (UP, observed(2, BindingState.BOUND)), False),
        ((UP,), (UP, observed(2, BindingState.RUNNING)), True),
        ((UP,), (observed(1, BindingState.STOPPED, stop_requested=True),), True),
        ((UP,), (observed(1, BindingState.UNKNOWN),), True),
        ((observed(1, BindingState.STOPPED),), (), False),
        ((observed(1, BindingState.FAILED),), (), False),
        ((UP,), (), True),
        ((observed(1, BindingState.UNKNOWN),), (), True),
    ],
    ids=[
        "same", "it-stopped-it", "it-bound-it", "runs", "has-stopped", "lost", "it-freed-it",
        "it-freed-a-failure", "freed-by-others", "lost-and-freed",
    ],
)  # fmt: skip
def test_a_placement_is_not_told_what_it_did_itself(
    reported: tuple[ObservedSlot, ...], now: tuple[ObservedSlot, ...], is_news: bool
) -> None:
    assert has_news(reported, now) is is_news
