"""Many timers in one heap, so that ten thousand of them need one task and not ten thousand."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from durable.agent.simulated.faults import InjectedFault


@dataclass(order=True, slots=True)
class Timer:
    """Fires for a token; `crash` is set if it is the timer of a fault, not of an ordinary step."""

    at: float
    number: int
    token: int = field(compare=False)
    crash: InjectedFault | None = field(compare=False, default=None)


class Timers:
    """Timers are never cancelled: when one fires, its owner checks that the number is current."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._numbers = count(1)

    def set(self, at: float, token: int, crash: InjectedFault | None = None) -> int:
        """The number of the new timer."""
        number = next(self._numbers)
        heapq.heappush(self._heap, Timer(at, number, token, crash))
        return number

    def due(self, now: float) -> Iterator[Timer]:
        """Removes and returns what is due, the earliest first; what is set meanwhile waits."""
        fired: list[Timer] = []
        while self._heap and self._heap[0].at <= now:
            fired.append(heapq.heappop(self._heap))
        return iter(fired)

    def seconds_until_next(self, now: float) -> float | None:
        return max(0.0, self._heap[0].at - now) if self._heap else None
