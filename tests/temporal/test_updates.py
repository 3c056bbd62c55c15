"""What is sent to a workflow is sent until it is answered, and a failure says what was wrong."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import (
    WorkflowQueryFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from durable.state_dir.record import StackError
from durable.temporal import updates
from durable.temporal.updates import NotYetError, Patience, Turns, send_until_answered


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(updates, name, 0.001)


@pytest.mark.parametrize(
    "error",
    [
        RPCError("no", RPCStatusCode.RESOURCE_EXHAUSTED, b""),
        RPCError("no", RPCStatusCode.ABORTED, b""),
        RPCError("no", RPCStatusCode.UNAVAILABLE, b""),
    ],
    ids=str,
)
async def test_what_passes_by_itself_is_waited_for(error: Exception) -> None:
    tries = 0

    async def send() -> str:
        nonlocal tries
        tries += 1
        if tries < 20:
            raise error
        return "done"

    assert await send_until_answered("scale risk/api", send) == "done"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (RPCError("no", RPCStatusCode.RESOURCE_EXHAUSTED, b""), "too many others send to it"),
        (RPCError("no", RPCStatusCode.ABORTED, b""), "too many others send to it"),
        (RPCError("no", RPCStatusCode.UNAVAILABLE, b""), "no worker answered"),
        (RPCError("not yours", RPCStatusCode.PERMISSION_DENIED, b""), "not yours"),
        (WorkflowQueryFailedError("[TMPRL1100] its task failed"), "its task failed"),
        (WorkflowQueryFailedError("no such query"), "no such query"),
    ],
)
async def test_a_failure_says_what_was_wrong(error: Exception, why: str) -> None:
    async def send() -> str:
        raise error

    with pytest.raises(StackError, match=why):
        await send_until_answered("scale risk/api", send, patience=Patience.within(0))


@pytest.mark.parametrize("error", [RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.UNAVAILABLE])
async def test_silence_of_a_worker_that_lives_is_waited_for_as_a_busy_one(
    error: RPCStatusCode,
) -> None:
    """Fifty callers on a slow machine are answered after more than the patience with silence."""
    tries = 0

    async def send() -> str:
        nonlocal tries
        tries += 1
        if tries < 20:
            raise RPCError("no answer", error, b"")
        return "done"

    async def is_served() -> bool:
        return True

    impatient = Patience(silence=timedelta(0))
    assert await send_until_answered("scale", send, patience=impatient, is_served=is_served)
    tries = 0
    with pytest.raises(StackError, match="no worker answered in 0 s; check with `durable status`"):
        await send_until_answered("scale", send, patience=impatient)
    tries = 0
    with pytest.raises(StackError, match="workers are busy, and did not come to this request"):
        await send_until_answered("scale", send, patience=Patience.within(0), is_served=is_served)


async def test_whoever_is_interrupted_sends_nothing_again() -> None:
    tries, sent = 0, asyncio.Event()

    async def send() -> str:
        nonlocal tries
        tries += 1
        sent.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:  # as the SDK does
            raise WorkflowUpdateRPCTimeoutOrCancelledError from error
        return "never"

    async with asyncio.timeout(60):
        task = asyncio.create_task(send_until_answered("scale risk/api", send))
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert tries == 1


async def test_what_is_not_known_yet_is_asked_again() -> None:
    tries = 0

    async def send() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise NotYetError("in a moment")
        return "done"

    assert await send_until_answered("read risk/api", send) == "done"


async def test_what_stays_unknown_is_said_as_it_was_found() -> None:
    async def send() -> str:
        raise NotYetError("its workflow has no memory of it yet")

    with pytest.raises(StackError, match="Could not read risk/api: its workflow has no memory"):
        await send_until_answered("read risk/api", send, patience=Patience.within(0))


@pytest.mark.parametrize(
    ("seconds", "silence", "busy", "each"),
    [(None, 60, 300, 20), (5, 5, 5, 5), (30, 30, 30, 20), (600, 60, 600, 20)],
)
def test_nobody_tries_for_longer_than_a_caller_waits(
    seconds: float | None, silence: float, busy: float, each: float
) -> None:
    patience = Patience.within(seconds)
    found = (patience.silence, patience.busy, patience.each)
    assert [one.total_seconds() for one in found] == [silence, busy, each]


async def test_only_so_many_of_one_process_send_to_one_workflow_at_a_time() -> None:
    turns, sending, most = Turns(), 0, 0

    async def send() -> None:
        nonlocal sending, most
        async with turns.of("workload/risk/api"):
            sending += 1
            most = max(most, sending)
            await asyncio.sleep(0)
            sending -= 1

    await asyncio.gather(*(send() for _ in range(50)))
    assert most == updates.UPDATES_AT_ONCE
