"""What runs in the background ends when it is asked to."""

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from durable import ending
from durable.controllers import wakeups
from durable.controllers.wakeups import WakeupController
from durable.ending import end_all


async def test_a_task_that_forgets_a_cancellation_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "ASKED_AGAIN_SECONDS", 0.01)
    forgotten = 0

    async def forgetful() -> None:
        nonlocal forgotten
        for _ in range(3):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            forgotten += 1
        await asyncio.Event().wait()

    async def fails() -> None:
        raise ValueError("nobody asks why")

    tasks = [asyncio.create_task(forgetful()), asyncio.create_task(fails())]
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await end_all(tasks)
    assert forgotten == 3
    assert all(task.done() for task in tasks)


async def test_wakeups_end_also_when_room_appears_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waited for a worker's end then waited for ever."""
    appeared = asyncio.Event()

    async def room_appeared(_: int) -> int:
        await appeared.wait()
        return 1

    async def wake(*_: object) -> None: ...

    monkeypatch.setattr(wakeups, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(WakeupController, "wake", wake)
    cache = SimpleNamespace(wakeups=0, room_appeared=room_appeared)
    regional: Any = SimpleNamespace(cache=cache, region="east")
    client: Any = None
    for ticks in range(6):
        appeared.clear()
        task = asyncio.create_task(WakeupController(regional, client).run())
        for _ in range(10):
            await asyncio.sleep(0)
        appeared.set()
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=5)
        appeared.clear()
        await end_all([task])
        assert done == {task}, f"cancelled {ticks} turns after the room appeared, it goes on"
