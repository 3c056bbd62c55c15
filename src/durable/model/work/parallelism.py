"""How many slots of a job each region may run at once: parts that never sum to more than allowed.

Regions hear of their parts at different times, so a part is only given away once its region can no
longer use it: because it has fewer slots left than that, or because it has confirmed a smaller one.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeVar

Region = TypeVar("Region", bound=str)


class RegionUse(NamedTuple):
    """What one region has left to do, and how many claims it may have at once."""

    # Slots that have not come to their end; it never grows.
    remaining: int
    # As it last got.
    allowed: int = 0
    # The most that it may be using, if it has not confirmed yet what it got.
    held: int = 0
    # Who could not use its part stands behind the others: the longer ago, the nearer to its turn.
    turn: int = 0

    @property
    def reach(self) -> int:
        """How many claims it could have at once, whatever it has heard of."""
        return min(max(self.allowed, self.held), self.remaining)


def divide_parallelism(parallelism: int, uses: Mapping[Region, RegionUse]) -> dict[Region, int]:
    """The parts to tell the regions now.

    No region gets less than it had, and what none could be using goes to those that have the
    smallest part of what they have left. So every region gets its turn: as soon as one has less
    left than its part, the rest of that part is free.
    """
    parts = {region: min(use.allowed, use.remaining) for region, use in uses.items()}
    free = parallelism - sum(use.reach for use in uses.values())
    wanting = [
        (use.turn, parts[region] / use.remaining, -use.remaining, region)
        for region, use in uses.items()
        if parts[region] < use.remaining
    ]
    heapify(wanting)
    while free > 0 and wanting:
        turn, _, _, region = heappop(wanting)
        remaining = uses[region].remaining
        parts[region] += 1
        free -= 1
        if parts[region] < remaining:
            heappush(wanting, (turn, parts[region] / remaining, -remaining, region))
    return parts
