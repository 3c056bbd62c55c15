"""The nodes of a region as columns: one row per node, rows of removed nodes used again."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from durable.model.amounts import DIMENSIONS
from durable.scheduling.snapshot.interning import NO_ID, Ids

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
