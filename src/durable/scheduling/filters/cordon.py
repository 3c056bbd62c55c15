"""A cordoned node keeps what it runs and takes nothing new."""

from durable.model.overrides.effects import Gate
from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, same_words
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.working_set import RowSelection, WorkingSet


def _is_cordoned(working: WorkingSet, rows: RowSelection) -> Mask | None:
    return None if Gate.CORDON in working.skips else working.columns.cordoned[rows]


CORDON = Filter("cordoned", PendingCode.NODES_UNAVAILABLE, _is_cordoned, same_words("cordoned"))
