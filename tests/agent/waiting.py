"""Wait for something that must become true, and no longer than a deadline."""

import asyncio
from collections.abc import Awaitable, Callable

DEADLINE_SECONDS = 30.0


async def eventually(what: str, holds: Callable[[], Awaitable[bool] | bool]) -> None:
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                answer = holds()
                if answer is True or (not isinstance(answer, bool) and await answer):
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not in {DEADLINE_SECONDS:.0f} s: {what}") from None
