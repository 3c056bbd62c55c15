"""Anti-affinity: a node takes only so many replicas of one workload."""

from collections import Counter

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _has_enough(working: WorkingSet, rows: RowSelection) -> Mask | None:
    most = working.spread.max_per_node
    return None if most is None else working.on_node[rows] >= most


def _words(working: WorkingSet, rows: Rows) -> Counter[str]:
    most = working.spread.max_per_node
    return Counter({f"at its {most} per node": len(rows)})


MAX_PER_NODE = Filter("max_per_node", PendingCode.SPREAD, _has_enough, _words)
