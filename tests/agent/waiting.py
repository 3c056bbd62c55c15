"""Wait for something that must become true, and no longer than a deadline; or work beside it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

DEADLINE_SECONDS = 180.0


async def eventually(what: str, holds: Callable[[], Awaitable[bool] | bool]) -> None:
    pause = 0.02
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                answer = holds()
                if answer is True or (not isinstance(answer, bool) and await answer):
                    return
                await asyncio.sleep(pause)
                pause = min(0.1, pause * 1.2)
    except TimeoutError:
        raise AssertionError(f"not in {DEADLINE_SECONDS:.0f} s: {what}") from None


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Runs what never ends by itself; if it fails, so does the test."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError), ended
