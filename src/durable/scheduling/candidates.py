"""The nodes that may take the work, by score: the best takes a slot, then the next is chosen."""

import hashlib
from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from durable.model.policy import Policy
from durable.scheduling.filters import CHANGING
from durable.scheduling.filters.spread import NODE_SKEW, closed_zones
from durable.scheduling.request import PlacementRequest
from durable.scheduling.scores import SCORES, Points
from durable.scheduling.snapshot.columns import NEVER, Mask, Rows
from durable.scheduling.working_set import WorkingSet

# Decides between equals and nothing else: far below what any weighted score differs by.
_TIE = 1e-9

Positions = NDArray[np.intp] | slice
_ALL = slice(None)


class Candidates:
    """Nodes with their points, kept up to date by scoring anew only the nodes that changed."""

    def __init__(
        self, working: WorkingSet, rows: Rows, ties: NDArray[np.float64], policy: Policy
    ) -> None:
        self.rows = rows
        self._working, self._ties, self._policy = working, ties, policy
        self._zones = working.columns.zone[rows]
        weighed = [(score, policy.weights.get(score.name, 0.0)) for score in SCORES]
        self._changing = [pair for pair in weighed if pair[1] and pair[0].changes]
        self._unchanging = [pair for pair in weighed if pair[1] and not pair[0].changes]
        self._own = np.empty(len(rows))
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
        drawn = np.sort(np.argpartition(self._ties, count)[:count])
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
        total = self._ties * _TIE
        for score, weight in self._unchanging:
            total += weight * self._points[score.name]
        return total

    def totals(self) -> Points:
        """Every candidate's points now; less than any number for those that may not."""
        if self._changed is not None:
            self._score(self._changed)
            self._changed = None
        return self._own + self._by_zone()[self._zones]

    def points_by_score(self, positions: NDArray[np.intp]) -> dict[str, Points]:
        """What each score that weighs anything gives these candidates now, unweighted."""
        rows = self.rows[positions]
        changing = {score.name: score(self._working, rows) for score, _ in self._changing}
        return changing | {name: points[positions] for name, points in self._points.items()}

    def best(self, banned: Collection[int]) -> int | None:
        """The position of the best candidate for a slot that must not go to the banned rows."""
        totals = self.totals()
        if banned:
            totals[np.isin(self.rows, list(banned))] = NEVER
        found = int(np.argmax(totals)) if len(totals) else 0
        return found if len(totals) and totals[found] > NEVER else None

    def take(self, position: int) -> None:
        floor = self._working.emptiest_node
        self._working.take(int(self.rows[position]))
        # Once every node has one more, those that were too far ahead are so no longer.
        rose = self._working.emptiest_node != floor
        self._changed = _ALL if rose else np.array([position])

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


def place(
    working: WorkingSet, candidates: Candidates, slots: Sequence[int], limit: int
) -> dict[int, int]:
    """The row of each slot that has one, for so many slots at most."""
    placed: dict[int, int] = {}
    # The choosiest first: a slot that may not go back somewhere has fewer nodes to choose from.
    waiting = sorted(set(slots), key=lambda slot: (not working.crashed_on(slot), slot))
    while waiting and len(placed) < limit:
        before = len(placed)
        placed |= _one_round(working, candidates, waiting, limit - before)
        waiting = [slot for slot in waiting if slot not in placed]
        # What was placed may have opened a zone for a slot that had found none.
        if len(placed) == before:
            break
    return placed


def _one_round(
    working: WorkingSet, candidates: Candidates, slots: Sequence[int], limit: int
) -> dict[int, int]:
    placed: dict[int, int] = {}
    for slot in slots:
        if len(placed) == limit:
            break
        banned = working.crashed_on(slot)
        position = candidates.best(banned)
        if position is not None:
            candidates.take(position)
            placed[slot] = int(candidates.rows[position])
        elif not banned:
            # No node for a slot that may go anywhere: none for those after it either.
            break
    return placed


def tie_breakers(request: PlacementRequest, count: int) -> NDArray[np.float64]:
    """The only randomness of a decision: numbers in [0, 1) that the request alone determines."""
    who = (request.tenant, request.workload, request.generation, request.attempt, request.region)
    digest = hashlib.sha256("/".join(map(str, who)).encode()).digest()
    # A bit generator's raw stream never changes; those of a Generator's methods may.
    stream = np.random.PCG64(int.from_bytes(digest[:16], "big"))
    raw: NDArray[np.uint64] = stream.random_raw(count)
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
