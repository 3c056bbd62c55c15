"""Slot by slot: the best candidate takes one, and what the next one sees is changed by it."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from durable.model.policy import Policy
from durable.scheduling.filters import MOVING
from durable.scheduling.filters.company import NODE_SPREAD, closed_zones
from durable.scheduling.question import Question
from durable.scheduling.scores import SCORES, Points
from durable.scheduling.snapshot.columns import NEVER
from durable.scheduling.snapshot.rows import Rows

# Decides between equals and nothing else: far below what any weighted score differs by.
_TIE = 1e-9

Positions = NDArray[np.intp] | slice
_ALL = slice(None)


class Pool:
    """Candidates with their points, kept up to date by looking again at touched nodes alone."""

    def __init__(
        self, question: Question, rows: Rows, ties: NDArray[np.float64], policy: Policy
    ) -> None:
        self.rows = rows
        self._question = question
        self._zones = question.columns.zone[rows]
        weighed = [(score, policy.weights.get(score.name, 0.0)) for score in SCORES]
        self._moving = [pair for pair in weighed if pair[1] and pair[0].moves]
        self._fixed = ties * _TIE
        self._points: dict[str, Points] = {}
        for score, weight in weighed:
            if weight and not score.moves:
                points = self._points[score.name] = score.of_node(question, rows)
                self._fixed += weight * points
        self._own = np.empty(len(rows))
        # Looked at again only when somebody asks: after the last slot, nobody does.
        self._touched: Positions | None = _ALL

    def totals(self) -> Points:
        """Every candidate's points now; less than any number for those that may not."""
        if self._touched is not None:
            self._look_again(self._touched)
            self._touched = None
        return self._own + self._by_zone()[self._zones]

    def points_by_score(self, positions: NDArray[np.intp]) -> dict[str, Points]:
        """What each score that weighs anything gives these candidates now, unweighted."""
        rows = self.rows[positions]
        moving = {score.name: score(self._question, rows) for score, _ in self._moving}
        return moving | {name: points[positions] for name, points in self._points.items()}

    def best(self, barred: Collection[int]) -> int | None:
        """The position of the best candidate for a slot that must not go to the barred rows."""
        totals = self.totals()
        if barred:
            totals[np.isin(self.rows, list(barred))] = NEVER
        found = int(np.argmax(totals)) if len(totals) else 0
        return found if len(totals) and totals[found] > NEVER else None

    def take(self, position: int) -> None:
        floor = self._question.emptiest_node
        self._question.take(int(self.rows[position]))
        # Once every node has one more, those that were too far ahead are so no longer.
        rose = self._question.emptiest_node != floor
        self._touched = _ALL if rose else np.array([position])

    def _look_again(self, positions: Positions) -> None:
        rows = self.rows[positions]
        points = self._fixed[positions].copy()
        for score, weight in self._moving:
            points += weight * score.of_node(self._question, rows)
        for each in (*MOVING, NODE_SPREAD):
            refused = each.refuses(self._question, rows)
            if refused is not None:
                points[refused] = NEVER
        self._own[positions] = points

    def _by_zone(self) -> Points:
        points = np.zeros(len(self._question.in_zone))
        for score, weight in self._moving:
            if score.of_zone is not None:
                points += weight * score.of_zone(self._question)
        closed = closed_zones(self._question)
        if closed is not None:
            points[closed] = NEVER
        return points


def place(question: Question, pool: Pool, slots: Sequence[int], limit: int) -> dict[int, int]:
    """The row of each slot that has one, for so many slots at most."""
    placed: dict[int, int] = {}
    # The choosiest first: a slot that may not go back somewhere has fewer nodes to choose from.
    waiting = sorted(set(slots), key=lambda slot: (not question.crashed_on(slot), slot))
    while waiting and len(placed) < limit:
        before = len(placed)
        placed |= _one_round(question, pool, waiting, limit - before)
        waiting = [slot for slot in waiting if slot not in placed]
        # What was placed may have opened a zone for a slot that had found none.
        if len(placed) == before:
            break
    return placed


def _one_round(question: Question, pool: Pool, slots: Sequence[int], limit: int) -> dict[int, int]:
    placed: dict[int, int] = {}
    for slot in slots:
        if len(placed) == limit:
            break
        barred = question.crashed_on(slot)
        position = pool.best(barred)
        if position is not None:
            pool.take(position)
            placed[slot] = int(pool.rows[position])
        elif not barred:
            # No node for a slot that may go anywhere: none for those after it either.
            break
    return placed
