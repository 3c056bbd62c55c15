"""The nodes of a region as columns: one row per node, small integers for what many share."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from durable.model.resources import DIMENSIONS

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


Rows = NDArray[np.intp]


class NodeRows:
    """Names and rows, both ways."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._row_of: dict[str, int] = {}
        self._spare: list[int] = []
        self._by_name: Rows | None = None

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, node: str) -> bool:
        return node in self._row_of

    @property
    def spare(self) -> int:
        return len(self._spare)

    def name(self, row: int) -> str:
        return self._names[row]

    def find(self, node: str) -> int | None:
        return self._row_of.get(node)

    def find_all(self, nodes: Iterable[str], count: int) -> Rows:
        """The row of each node in turn, NO_ID for one that is not here."""
        row_of = self._row_of
        return np.fromiter((row_of.get(node, NO_ID) for node in nodes), np.intp, count)

    def add(self, node: str) -> int:
        row = self._spare.pop()
        self._names[row] = node
        self._row_of[node] = row
        self._by_name = None
        return row

    def drop(self, node: str) -> int | None:
        row = self._row_of.pop(node, None)
        if row is not None:
            self._spare.append(row)
            self._by_name = None
        return row

    def extend(self, rows: int) -> None:
        """Makes room up to so many rows; the lowest is given out first."""
        self._spare.extend(range(rows - 1, len(self._names) - 1, -1))
        self._names.extend([""] * (rows - len(self._names)))

    def by_name(self) -> Rows:
        """Every node's row in the order of names, which does not depend on who arrived first."""
        if self._by_name is None:
            ordered = sorted(self._row_of)
            self._by_name = self.find_all(ordered, len(ordered))
        return self._by_name


Mask = NDArray[np.bool_]
# Contiguous by dimension: a decision reads one dimension of every node, never all of one node.
AmountColumns = NDArray[np.int64]

NEVER = -np.inf
NO_LEASE = 0


@dataclass(slots=True)
class Columns:
    """Every column is as long as the others; rows that are not `live` mean nothing."""

    live: Mask
    zone: Ids
    capacity: AmountColumns
    used: AmountColumns
    unhealthy_gpus: NDArray[np.int64]
    ready: Mask
    cordoned: Mask
    lease_epoch: NDArray[np.int64]
    lease_expires_at: NDArray[np.float64]
    dedicated_to: Ids
    label_set: Ids
    taint_set: Ids

    @classmethod
    def of(cls, rows: int) -> "Columns":
        return cls(
            live=np.zeros(rows, dtype=np.bool_),
            zone=np.zeros(rows, dtype=np.int32),
            capacity=np.zeros((rows, len(DIMENSIONS)), dtype=np.int64, order="F"),
            used=np.zeros((rows, len(DIMENSIONS)), dtype=np.int64, order="F"),
            unhealthy_gpus=np.zeros(rows, dtype=np.int64),
            ready=np.zeros(rows, dtype=np.bool_),
            cordoned=np.zeros(rows, dtype=np.bool_),
            lease_epoch=np.full(rows, NO_LEASE, dtype=np.int64),
            lease_expires_at=np.full(rows, NEVER, dtype=np.float64),
            dedicated_to=np.full(rows, NO_ID, dtype=np.int32),
            label_set=np.zeros(rows, dtype=np.int32),
            taint_set=np.zeros(rows, dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.live)

    def grown(self, rows: int) -> "Columns":
        """The same rows, and room for more behind them."""
        larger = Columns.of(rows)
        for column in fields(Columns):
            getattr(larger, column.name)[: len(self)] = getattr(self, column.name)
        return larger
