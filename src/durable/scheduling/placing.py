"""Slot by slot: each goes to the best node that is left, and where it cannot, others make way."""

from collections.abc import Sequence

from durable.scheduling.candidates import Candidates
from durable.scheduling.exchange import make_way
from durable.scheduling.working_set import WorkingSet

# One round places all or nearly all; each exchange is followed by another, and few are needed.
_ROUNDS_PER_SLOT = 4


def place(
    working: WorkingSet,
    candidates: Candidates,
    slots: Sequence[int],
    limit: int,
    placed: dict[int, int],
) -> None:
    """Adds to `placed` the row of each slot that gets one, until there are as many as the limit.

    Crash bans aside, slots are alike: the greedy order places as many as there are places. Where
    bans leave one over, exchanges find it a place if there is any.
    """
    # The choosiest first: a slot that may not go back somewhere has fewer nodes to choose from.
    waiting = sorted(set(slots) - placed.keys(), key=lambda s: (not working.crashed_on(s), s))
    for _ in range(_ROUNDS_PER_SLOT * len(waiting)):
        if not waiting or len(placed) == limit:
            break
        before = len(placed)
        _one_round(working, candidates, waiting, limit, placed)
        # What was placed may have opened a zone for a slot that had found none.
        if len(placed) == before and not make_way(working, candidates, waiting, placed):
            break
        waiting = [slot for slot in waiting if slot not in placed]


def _one_round(
    working: WorkingSet,
    candidates: Candidates,
    slots: Sequence[int],
    limit: int,
    placed: dict[int, int],
) -> None:
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
