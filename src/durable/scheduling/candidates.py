"""The nodes that may take the work, by score: the best takes a slot, then the next is chosen."""

import hashlib
from collections.abc import Collection, Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from durable.model.policy.policy import Policy
from durable.scheduling.filters import CHANGING
from durable.scheduling.filters.spread import NODE_SKEW, closed_zones
from durable.scheduling.request import PlacementRequest
from durable.scheduling.scores import SCORES, Points
from durable.scheduling.snapshot.columns import NEVER, Mask, Rows
from durable.scheduling.working_set import WorkingSet

Positions = NDArray[np.intp] | slice
_ALL = slice(None)


class Candidates:
    """Nodes with their points, kept up to date by scoring anew only the nodes that changed.

    `ties` decide between those whose points are within the policy's band of the best.
    """

    def __init__(
        self, working: WorkingSet, rows: Rows, ties: NDArray[np.float64], policy: Policy
    ) -> None:
        self.rows = rows
        self._working, self._ties, self._policy = working, ties, policy
        self._zones = working.columns.zone[rows]
        weighed = [(score, policy.weights.get(score.name, 0.0)) for score in SCORES]
        self._changing = [pair for pair in weighed if pair[1] and pair[0].changes]
        self._unchanging = [pair for pair in weighed if pair[1] and not pair[0].changes]
        self._own = self._totals = np.empty(len(rows))
        # Scored again only when somebody needs it: after the last slot, nobody does.
        self._changed: Positions | None = _ALL

    @classmethod
    def all_of(cls, working: WorkingSet, mask: Mask, policy: Policy) -> "Candidates":
        """In the order of their names, with the numbers that decide between equals."""
        by_name = working.snapshot.rows_by_name()
        rows = by_name[mask[by_name]]
        return cls(working, rows, tie_breakers(working.request, len(rows)), policy)

    def sample(self, count: int) -> "Candidates":
        """So many of them, drawn at random by the numbers that decide between equals."""
        drawn = np.sort(largest(self._ties, count))
        return Candidates(self._working, self.rows[drawn], self._ties[drawn], self._policy)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _points(self) -> dict[str, Points]:
        """What each score that stays the same gives; worked out once, when first needed."""
        return {
            score.name: score.of_node(self._working, self.rows) for score, _ in self._unchanging
        }

    @cached_property
    def _fixed(self) -> Points:
        total = np.zeros(len(self.rows))
        for score, weight in self._unchanging:
            total += weight * self._points[score.name]
        return total

    def totals(self) -> Points:
        """Every candidate's points now; less than any number for those that may not."""
        if self._changed is not None:
            self._score(self._changed)
            self._changed = None
            self._totals = self._own + self._by_zone()[self._zones]
        return self._totals

    def points_by_score(self, positions: NDArray[np.intp]) -> dict[str, Points]:
        """What each score that weighs anything gives these candidates now, unweighted."""
        rows = self.rows[positions]
        changing = {score.name: score(self._working, rows) for score, _ in self._changing}
        return changing | {name: points[positions] for name, points in self._points.items()}

    def best(self, banned: Collection[int] = ()) -> int | None:
        """The position of the node for a slot that must not go to the banned rows."""
        totals = self.totals()
        if banned:
            totals = np.where(np.isin(self.rows, list(banned)), NEVER, totals)
        most = float(totals.max(initial=NEVER))
        if most == NEVER:
            return None
        within = np.flatnonzero(totals >= most - self._policy.choice_band)
        return int(within[np.argmax(self._ties[within])])

    def take(self, position: int) -> None:
        floor = self._working.emptiest_node
        self._working.take(int(self.rows[position]))
        # Once every node has one more, those that were too far ahead are so no longer.
        rose = self._working.emptiest_node != floor
        self._changed = _ALL if rose else np.array([position])

    def move(self, leave: Iterable[int], enter: Iterable[int]) -> None:
        """Moves replicas that this decision has placed, from rows to rows."""
        for row in leave:
            self._working.put_back(row)
        for row in enter:
            self._working.take(row)
        self._changed = _ALL

    def open_rows(self) -> list[int]:
        """The rows that could take one more, the best first."""
        totals = self.totals()
        ordered = np.argsort(-totals, kind="stable")
        return self.rows[ordered[totals[ordered] > NEVER]].tolist()

    def rows_with_room(self) -> list[int]:
        """Those that could take one more, were it not for their zone."""
        self.totals()
        return self.rows[self._own > NEVER].tolist()

    def _score(self, positions: Positions) -> None:
        rows = self.rows[positions]
        points = self._fixed[positions].copy()
        for score, weight in self._changing:
            points += weight * score.of_node(self._working, rows)
        for each in (*CHANGING, NODE_SKEW):
            rejected = each.rejects(self._working, rows)
            if rejected is not None:
                points[rejected] = NEVER
        self._own[positions] = points

    def _by_zone(self) -> Points:
        points = np.zeros(len(self._working.in_zone))
        for score, weight in self._changing:
            if score.of_zone is not None:
                points += weight * score.of_zone(self._working)
        closed = closed_zones(self._working)
        if closed is not None:
            points[closed] = NEVER
        return points


def tie_breakers(request: PlacementRequest, count: int) -> NDArray[np.float64]:
    """The only randomness of a decision: numbers in [0, 1) that the request alone determines."""
    who = (request.tenant, request.workload, request.generation, request.attempt, request.region)
    digest = hashlib.sha256("/".join(map(str, who)).encode()).digest()
    # A bit generator's raw stream never changes; those of a Generator's methods may.
    stream = np.random.PCG64(int.from_bytes(digest[:16], "big"))
    raw: NDArray[np.uint64] = stream.random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def largest(values: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Positions of the largest values, the largest first; of equals, the first.

    A partition by index would put equals into an order that depends on the processor.
    """
    if count >= len(values):
        return np.argsort(-values, kind="stable")
    least = np.partition(values, -count)[-count]
    above = np.flatnonzero(values > least)
    equal = np.flatnonzero(values == least)[: count - len(above)]
    return np.concatenate([above[np.argsort(-values[above], kind="stable")], equal])
