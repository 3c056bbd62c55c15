"""Ending what runs in the background, whatever forgets that it was asked to."""

import asyncio
from collections.abc import Iterable
from typing import Any

# Long enough for whoever tidies up first: a further cancellation interrupts that.
ASKED_AGAIN_SECONDS = 5.0


async def end_all(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    """Cancels until all have ended; what became of them is nobody's concern any more.

    In Python 3.11 `asyncio.wait_for`, in any library, forgets a cancellation that comes with the
    answer. A task that runs for ever would then run on, and whoever waits for its end would too.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        ended, running = await asyncio.wait(running, timeout=ASKED_AGAIN_SECONDS)
        for task in ended:
            if not task.cancelled():
                task.exception()
