"""Which row a node has: rows are given out once, used again, and put in one order by name."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from durable.scheduling.snapshot.interning import NO_ID

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
