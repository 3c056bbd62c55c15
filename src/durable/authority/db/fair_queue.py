"""A queue in which tenants take turns: within a priority, one item of each, and around again."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Turn(NamedTuple):
    """Who an item belongs to, and how urgent it is."""

    tenant: str
    priority: int = 0


class FairQueue(Generic[T]):
    """Items by priority, the highest first; equals of one tenant stay in their order.

    A tenant with one item waits for one item of each other tenant, however many they have.
    """

    def __init__(self, turn_of: Callable[[T], Turn]) -> None:
        self._turn_of = turn_of
        # By priority, the tenants in the order of their turns.
        self._by_priority: dict[int, dict[str, deque[T]]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Every item, in no order that matters."""
        return (
            item
            for tenants in self._by_priority.values()
            for items in tenants.values()
            for item in items
        )

    def append(self, item: T) -> None:
        self._of(item).append(item)
        self._length += 1

    def put_back(self, items: Iterable[T]) -> None:
        """Returns what was popped, in the same order, to before what waits."""
        for item in reversed(list(items)):
            self._of(item).appendleft(item)
            self._length += 1

    def pop(self) -> T:
        """The next item; its tenant's next turn comes after all others'."""
        priority = max(self._by_priority)
        tenants = self._by_priority[priority]
        tenant = next(iter(tenants))
        items = tenants.pop(tenant)
        item = items.popleft()
        if items:
            tenants[tenant] = items
        elif not tenants:
            del self._by_priority[priority]
        self._length -= 1
        return item

    def _of(self, item: T) -> deque[T]:
        turn = self._turn_of(item)
        tenants = self._by_priority.setdefault(turn.priority, {})
        return tenants.setdefault(turn.tenant, deque())


def in_turns(items: Iterable[T], turn_of: Callable[[T], Turn]) -> list[T]:
    """The items in the order in which a fair queue gives them out."""
    queue = FairQueue(turn_of)
    for item in items:
        queue.append(item)
    return [queue.pop() for _ in range(len(queue))]
