"""Replicas of one workload are spread evenly over zones and nodes, within the skew it allows."""

from collections import Counter

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, count_by_id
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def closed_zones(working: WorkingSet) -> Mask | None:
    """The zones that one more replica would put too far ahead of the emptiest."""
    skew = working.spread.zone_max_skew
    return None if skew is None else working.in_zone + 1 - working.emptiest_zone > skew


def _zone_is_ahead(working: WorkingSet, rows: RowSelection) -> Mask | None:
    closed = closed_zones(working)
    return None if closed is None else closed[working.columns.zone[rows]]


def _zone_words(working: WorkingSet, rows: Rows) -> Counter[str]:
    names = working.snapshot.zones.values
    skew = working.spread.zone_max_skew
    zones = working.columns.zone[rows]
    return count_by_id(zones, lambda zone: f"zone {names[zone]} at its skew of {skew}")


def _node_is_ahead(working: WorkingSet, rows: RowSelection) -> Mask | None:
    skew = working.spread.node_max_skew
    return None if skew is None else working.on_node[rows] + 1 - working.emptiest_node > skew


def _node_words(working: WorkingSet, rows: Rows) -> Counter[str]:
    skew = working.spread.node_max_skew
    return Counter({f"at its node skew of {skew}": len(rows)})


ZONE_SKEW = Filter("zone_skew", PendingCode.SPREAD, _zone_is_ahead, _zone_words)
NODE_SKEW = Filter("node_skew", PendingCode.SPREAD, _node_is_ahead, _node_words)
