"""A node must have renewed its lease in the region's current epoch, and the lease must be valid."""

from collections import Counter

import numpy as np

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _is_stale(working: WorkingSet, rows: RowSelection) -> Mask:
    of_another_epoch = working.columns.lease_epoch[rows] != working.snapshot.epoch
    return _has_expired(working, rows) | of_another_epoch


def _has_expired(working: WorkingSet, rows: RowSelection) -> Mask:
    return working.columns.lease_expires_at[rows] <= working.snapshot.now


def _words(working: WorkingSet, rows: Rows) -> Counter[str]:
    expired = int(np.count_nonzero(_has_expired(working, rows)))
    counted = {"lease expired": expired, "not back since the fence": len(rows) - expired}
    return Counter({words: count for words, count in counted.items() if count})


LEASE = Filter("stale", PendingCode.NODES_UNAVAILABLE, _is_stale, _words)
