"""A slot does not go back to a node on which it has just crashed."""

from collections import Counter

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _crashed_there(working: WorkingSet, rows: RowSelection) -> Mask | None:
    return None if working.banned is None else working.banned[rows]


def _words(working: WorkingSet, rows: Rows) -> Counter[str]:
    ends = map(working.banned_until, map(int, rows))
    return Counter(f"it crashed there, avoided until {end:%H:%M:%S}Z" for end in ends)


CRASHES = Filter("crashed", PendingCode.CRASHED, _crashed_there, _words)
