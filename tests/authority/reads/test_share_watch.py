"""Waiting in the same process for a share to come through."""

import asyncio
from datetime import UTC, datetime

import pytest

from durable.authority.reads.share_feed import ShareWatch
from durable.authority.reads.shares import ShareStatus
from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import ObservedSlot
from durable.model.states import BindingState
from durable.temporal.worker import MAX_WORKFLOW_TASKS, waiting_starts

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ("risk", "api", 1)
COMING_UP = (BindingState.BOUND, BindingState.STARTING)
LONG = 60.0


def share(*states: BindingState) -> ShareStatus:
    """Tokens 1, 2 ... in these states."""
    slots = tuple(
        ObservedSlot(
            slot=number,
            token=number + 1,
            attempt=1,
            node=NodeId("node-1"),
            state=state,
            evidence="",
            since=NOW,
            stop_requested=False,
        )
        for number, state in enumerate(states)
    )
    return ShareStatus(
        region=RegionId("east"),
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        generation=1,
        slots=slots,
        request=None,
        as_of=1,
        read_at=NOW,
        read_until=NOW,
    )


async def waiting(watch: ShareWatch, *tokens: int) -> "asyncio.Task[ShareStatus | None]":
    task = asyncio.create_task(watch.wait_past(KEY, tokens, COMING_UP, seconds=LONG))
    await asyncio.sleep(0)
    assert watch.keys == (KEY,)
    return task


async def test_a_waiter_gets_the_share_when_no_binding_is_coming_up() -> None:
    watch = ShareWatch(most=1)
    task = await waiting(watch, 1, 2)

    assert not watch.publish(share(BindingState.SERVING, BindingState.STARTING))
    up = share(BindingState.SERVING, BindingState.FAILED)
    assert watch.publish(up)

    assert await task == up
    assert watch.keys == ()


async def test_a_share_that_was_read_before_the_start_is_not_the_answer() -> None:
    watch = ShareWatch(most=1)
    task = await waiting(watch, 1, 2)

    assert not watch.publish(share(BindingState.SERVING)), "token 2 is not in it yet"
    assert watch.publish(share(BindingState.SERVING, BindingState.SERVING))
    assert await task is not None


async def test_bindings_of_other_steps_are_nobodys_business() -> None:
    watch = ShareWatch(most=1)
    task = await waiting(watch, 2)

    assert watch.publish(share(BindingState.STARTING, BindingState.SERVING))
    assert await task is not None


async def test_a_share_that_takes_too_long_is_not_waited_for() -> None:
    watch = ShareWatch(most=1)
    assert await watch.wait_past(KEY, [1], COMING_UP, seconds=0) is None
    assert not watch.publish(share(BindingState.SERVING)), "nobody waits any more"


async def test_a_step_that_is_run_again_waits_instead_of_the_first() -> None:
    watch = ShareWatch(most=2)
    first = await waiting(watch, 1)
    second = await waiting(watch, 1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)

    assert watch.keys == (KEY,), "the end of the first is not the end of the second"
    assert watch.publish(share(BindingState.SERVING))
    assert await second is not None


async def test_no_more_wait_than_leave_slots_to_others() -> None:
    watch = ShareWatch(most=1)
    task = await waiting(watch, 1)
    other = ("risk", "other", 1)
    assert await watch.wait_past(other, [2], COMING_UP, seconds=LONG) is None, "at once"
    assert watch.publish(share(BindingState.SERVING))
    assert await task is not None


@pytest.mark.parametrize("tasks", [1, 2, 5, MAX_WORKFLOW_TASKS])
def test_steps_that_wait_never_hold_every_slot_of_a_worker(tasks: int) -> None:
    assert waiting_starts(tasks) < tasks
