"""A fenced region takes no new work."""

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, every_node, same_words
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.working_set import RowSelection, WorkingSet


def _is_fenced(working: WorkingSet, rows: RowSelection) -> Mask | None:
    return None if working.snapshot.is_open else every_node(working, rows)


REGION_FENCE = Filter(
    "region_fenced", PendingCode.REGION_FENCED, _is_fenced, same_words("region fenced")
)
