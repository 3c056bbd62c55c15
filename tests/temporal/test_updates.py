"""What is sent to a workflow is sent until it is answered, and a failure says what was wrong."""

import asyncio

import pytest
from temporalio.service import RPCError, RPCStatusCode

from durable.state_dir.record import StackError
from durable.temporal import updates
from durable.temporal.updates import Turns, send_until_answered


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(updates, name, 0.001)


@pytest.mark.parametrize(
    "status",
    [RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.ABORTED, RPCStatusCode.UNAVAILABLE],
)
async def test_what_passes_by_itself_is_waited_for(status: RPCStatusCode) -> None:
    tries = 0

    async def send() -> str:
        nonlocal tries
        tries += 1
        if tries < 20:
            raise RPCError("no", status, b"")
        return "done"

    assert await send_until_answered("scale risk/api", send) == "done"


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (RPCStatusCode.RESOURCE_EXHAUSTED, "too many others send to it at the same time"),
        (RPCStatusCode.ABORTED, "too many others send to it at the same time"),
        (RPCStatusCode.UNAVAILABLE, "no worker answered"),
        (RPCStatusCode.PERMISSION_DENIED, "not yours"),
    ],
)
async def test_a_failure_says_what_was_wrong(
    monkeypatch: pytest.MonkeyPatch, status: RPCStatusCode, why: str
) -> None:
    for name in ("ANSWER_TIMEOUT", "BUSY_TIMEOUT"):
        monkeypatch.setattr(updates, name, updates.TRY_TIMEOUT * 0)

    async def send() -> str:
        raise RPCError("not yours", status, b"")

    with pytest.raises(StackError, match=why):
        await send_until_answered("scale risk/api", send)


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
