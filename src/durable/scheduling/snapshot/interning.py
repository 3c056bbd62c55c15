"""Small ids for what many nodes have in common, so that a column holds integers alone."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Ids = NDArray[np.int32]
Interned = TypeVar("Interned", bound=Hashable)

NO_ID = -1
# What was derived from the values is kept for so many keys; then it is worked out again.
_MAX_DERIVED = 256


class InternTable(Generic[Interned]):
    """Gives values ids in the order of their arrival; a decision never depends on that order."""

    def __init__(self) -> None:
        self.values: list[Interned] = []
        self._ids: dict[Interned, int] = {}
        self._derived: dict[Hashable, NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.values)

    def intern(self, value: Interned) -> int:
        """The value's id, a new one if it was never seen."""
        id = self._ids.setdefault(value, len(self.values))
        if id == len(self.values):
            self.values.append(value)
        return id

    def find(self, value: Interned) -> int:
        """The value's id, or NO_ID."""
        return self._ids.get(value, NO_ID)

    def derived(
        self, key: Hashable, derive: Callable[[Interned], object], dtype: DTypeLike
    ) -> NDArray[Any]:
        """What `derive` makes of each value, by its id; worked out once per key and value."""
        known = self._derived.get(key)
        if known is None and len(self._derived) >= _MAX_DERIVED:
            self._derived.clear()
        done = 0 if known is None else len(known)
        if known is None or done < len(self.values):
            fresh = np.array([derive(value) for value in self.values[done:]], dtype=dtype)
            known = fresh if known is None else np.concatenate([known, fresh])
            self._derived[key] = known
        return known

    def keep_only(self, used: NDArray[Any]) -> Ids:
        """Forgets every value but those of these ids; the answer maps an old id to its new one."""
        renumbered = np.full(len(self.values), NO_ID, dtype=np.int32)
        renumbered[used] = np.arange(len(used), dtype=np.int32)
        self.values = [self.values[id] for id in used]
        self._ids = {value: id for id, value in enumerate(self.values)}
        self._derived.clear()
        return renumbered
