"""Many timers in one heap, so that ten thousand of them cost one task and not ten thousand."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from durable.agent.faults import Fault


@dataclass(order=True, slots=True)
class Timer:
    """Rings for a token; `crash` tells a fault's timer from that of an ordinary step."""

    at: float
    number: int
    token: int = field(compare=False)
    crash: Fault | None = field(compare=False, default=None)


class Timers:
    """Timers are never taken back: whoever is rung asks whether the number is still theirs."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._numbers = count(1)

    def set(self, at: float, token: int, crash: Fault | None = None) -> int:
        """The number of the new timer."""
        number = next(self._numbers)
        heapq.heappush(self._heap, Timer(at, number, token, crash))
        return number

    def due(self, now: float) -> Iterator[Timer]:
        """Takes out what is due, the earliest first; what is set meanwhile waits for next time."""
        ringing: list[Timer] = []
        while self._heap and self._heap[0].at <= now:
            ringing.append(heapq.heappop(self._heap))
        return iter(ringing)

    def seconds_until_next(self, now: float) -> float | None:
        return max(0.0, self._heap[0].at - now) if self._heap else None
