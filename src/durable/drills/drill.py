"""A drill: steps on a running stack, each with what was expected of it and what was seen."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from durable.drills.world import World
from durable.validation.value import Value


class Expectation(Value):
    """One thing that had to be so."""

    what: str
    met: bool
    seen: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.seen})" if self.seen else self.what


@dataclass(frozen=True)
class Drill:
    """A rehearsal of one runbook: a function, and a row of `DRILLS`.

    `run` finds the workloads of the examples serving, and yields each expectation as it is known.
    """

    name: str
    sentence: str
    runbook: str
    run: Callable[[World], AsyncIterator[Expectation]]


async def in_turn(*parts: AsyncIterator[Expectation]) -> AsyncIterator[Expectation]:
    """One part after the other."""
    for part in parts:
        async for expectation in part:
            yield expectation
