"""A node must be ready."""

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, same_words
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.working_set import RowSelection, WorkingSet


def _not_ready(working: WorkingSet, rows: RowSelection) -> Mask:
    return ~working.columns.ready[rows]


READY = Filter("not_ready", PendingCode.NODES_UNAVAILABLE, _not_ready, same_words("not ready"))
