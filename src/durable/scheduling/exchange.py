"""Slots that make way for one that crash bans keep from every open node.

Placed slots are exchanged along a path that begins with the slot left over and ends at an open
node, as in a bipartite matching. A place is one on a node, or, where a zone is at its skew, one in
the zone. If there is no such path, the placed slots may lie too unevenly: a path that ends in the
emptiest zone or node evens them out, and raises what every other may have.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from durable.scheduling.candidates import Candidates
from durable.scheduling.working_set import WorkingSet


@dataclass(frozen=True, slots=True)
class _Step:
    """The slot that takes another's place, and the row to which it goes for that."""

    slot: int
    row: int


def make_way(
    working: WorkingSet, candidates: Candidates, waiting: Iterable[int], placed: dict[int, int]
) -> bool:
    """Places one more slot by exchanges, or evens them out; whether anything was changed."""
    if not working.request.crashes:
        return False
    search = _Search(working, candidates, placed)
    return bool(search.open) and (search.exchange(waiting, search.open) or search.even_out())


class _Search:
    """One look for a path: every slot, node and zone is visited once."""

    def __init__(self, working: WorkingSet, candidates: Candidates, placed: dict[int, int]) -> None:
        self._working, self._candidates, self._placed = working, candidates, placed
        self.open = candidates.open_rows()
        self._zone_of = working.columns.zone
        # Rows that could take one more but for their zone. Where nodes must be even as well, they
        # stay out of it: taking a replica off one node could close all the others.
        self._closed: dict[int, list[int]] = defaultdict(list)
        if working.spread.node_max_skew is None:
            is_open = set(self.open)
            for row in candidates.rows_with_room():
                if row not in is_open:
                    self._closed[int(self._zone_of[row])].append(row)

    def exchange(self, start: Iterable[int], ends: Collection[int]) -> bool:
        """Exchanges along the shortest path from one of the slots to one of the rows."""
        steps: dict[int, _Step | None] = dict.fromkeys(start)
        on_row, in_zone = self._places()
        queue = deque(steps)
        while queue:
            slot = queue.popleft()
            banned = self._working.crashed_on(slot)
            end = next((row for row in ends if row not in banned), None)
            if end is not None:
                self._apply(steps, _Step(slot, end))
                return True
            # It may take another's place on a node, or in a closed zone that has room on a node.
            free_of_ban = [row for row in on_row if row not in banned]
            places = [(row, on_row.pop(row)) for row in free_of_ban]
            for zone in [zone for zone in self._closed if zone in in_zone]:
                row = next((row for row in self._closed[zone] if row not in banned), None)
                if row is not None:
                    places.append((row, in_zone.pop(zone)))
            for row, holders in places:
                for other in [other for other in holders if other not in steps]:
                    steps[other] = _Step(slot, row)
                    queue.append(other)
        return False

    def even_out(self) -> bool:
        """Moves a slot from where the workload is ahead by two or more to where it has least."""
        working, spread = self._working, self._working.spread
        if spread.node_max_skew is not None:
            counts, floor = working.on_node, working.emptiest_node
        elif spread.zone_max_skew is not None:
            counts, floor = working.in_zone[self._zone_of], working.emptiest_zone
        else:
            return False
        ahead = [slot for slot, row in self._placed.items() if counts[row] > floor + 1]
        return self.exchange(ahead, [row for row in self.open if counts[row] == floor])

    def _places(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        on_row: dict[int, list[int]] = defaultdict(list)
        in_zone: dict[int, list[int]] = defaultdict(list)
        for slot, row in sorted(self._placed.items()):
            on_row[row].append(slot)
            in_zone[int(self._zone_of[row])].append(slot)
        return on_row, in_zone

    def _apply(self, steps: dict[int, _Step | None], last: _Step) -> None:
        moved: dict[int, int] = {}
        step: _Step | None = last
        while step is not None:
            moved[step.slot] = step.row
            step = steps[step.slot]
        left = Counter(self._placed[slot] for slot in moved if slot in self._placed)
        entered = Counter(moved.values())
        self._candidates.move((left - entered).elements(), (entered - left).elements())
        self._placed.update(moved)
