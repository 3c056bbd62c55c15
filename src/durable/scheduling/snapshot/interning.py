"""Small numbers for what many nodes have in common, so that a column holds integers alone."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Numbers = NDArray[np.int32]
Thing = TypeVar("Thing", bound=Hashable)

NO_ID = -1
# What was worked out of the things is kept for so many questions; then it is worked out again.
_DERIVED_AT_MOST = 256


class Interned(Generic[Thing]):
    """Numbers things in the order of their arrival; a decision must never depend on that order."""

    def __init__(self) -> None:
        self.things: list[Thing] = []
        self._numbers: dict[Thing, int] = {}
        self._derived: dict[Hashable, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.things)

    def number(self, thing: Thing) -> int:
        """The thing's number, a new one if it was never seen."""
        found = self._numbers.setdefault(thing, len(self.things))
        if found == len(self.things):
            self.things.append(thing)
        return found

    def find(self, thing: Thing) -> int:
        """The thing's number, or one that nothing has."""
        return self._numbers.get(thing, NO_ID)

    def derived(
        self, question: Hashable, of: Callable[[Thing], object], dtype: DTypeLike
    ) -> NDArray[Any]:
        """What `of` says of each thing by its number, asked once per question and thing."""
        known = self._derived.get(question)
        if known is None and len(self._derived) >= _DERIVED_AT_MOST:
            self._derived.clear()
        done = 0 if known is None else len(known)
        if known is None or done < len(self.things):
            fresh = np.array([of(thing) for thing in self.things[done:]], dtype=dtype)
            known = fresh if known is None else np.concatenate([known, fresh])
            self._derived[question] = known
        return known

    def forget_all_but(self, used: NDArray[Any]) -> Numbers:
        """Keeps the things of these numbers; the answer maps an old number to its new one."""
        renumbered = np.full(len(self.things), NO_ID, dtype=np.int32)
        renumbered[used] = np.arange(len(used), dtype=np.int32)
        self.things = [self.things[number] for number in used]
        self._numbers = {thing: number for number, thing in enumerate(self.things)}
        self._derived.clear()
        return renumbered
