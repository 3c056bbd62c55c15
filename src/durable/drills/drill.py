"""A drill: steps on a running stack, each with what was expected of it and what was seen."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from durable.drills.world import World
from durable.validation.value import Value

POLL_SECONDS = 0.25


class Expectation(Value):
    """One thing that had to be so."""

    what: str
    met: bool
    seen: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.seen})" if self.seen else self.what


@dataclass(frozen=True)
class Drill:
    """A rehearsal of one runbook; a further one is one file of this room and one line of `DRILLS`.

    `run` finds the workloads of the examples serving, and yields each expectation as it is known.
    """

    name: str
    sentence: str
    runbook: str
    run: Callable[[World], AsyncIterator[Expectation]]


async def come_true(condition: Callable[[], Awaitable[bool]], within_seconds: float) -> bool:
    """Whether it becomes so in time."""
    until = time.monotonic() + within_seconds
    while time.monotonic() < until:
        if await condition():
            return True
        await asyncio.sleep(POLL_SECONDS)
    return await condition()
