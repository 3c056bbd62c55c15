"""Nodes that an override closes to the work, such as those of an avoided zone, take none of it."""

from collections import Counter

import numpy as np

from durable.model.overrides.effects import Effects, Gate
from durable.model.overrides.in_force import RegionalOverride
from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _closing(working: WorkingSet) -> tuple[RegionalOverride, ...]:
    if Gate.AVOIDED in working.skips:
        return ()
    return tuple(one for one in working.request.overrides if one.effects.narrows)


def _closed_by(working: WorkingSet, effects: Effects, rows: RowSelection) -> Mask:
    closed = np.zeros_like(working.columns.live[rows])
    if effects.avoid_zones:
        closed |= working.in_zones(rows, effects.avoid_zones)
    if effects.avoid_nodes:
        closed |= working.are_nodes(rows, effects.avoid_nodes)
    if effects.only_zone is not None:
        closed |= ~working.in_zones(rows, (effects.only_zone,))
    if effects.only_node is not None:
        closed |= ~working.are_nodes(rows, (effects.only_node,))
    return closed


def _is_closed(working: WorkingSet, rows: RowSelection) -> Mask | None:
    closing = _closing(working)
    if not closing:
        return None
    masks = [_closed_by(working, one.effects, rows) for one in closing]
    return np.logical_or.reduce(masks)


def _words(working: WorkingSet, rows: Rows) -> Counter[str]:
    """A node counts under the first override that closes it."""
    counted: Counter[str] = Counter()
    left = rows
    for one in _closing(working):
        closed = _closed_by(working, one.effects, left)
        words = f"closed by override {one.override} until {one.expires_at:%H:%M:%S}Z"
        counted[words] += int(np.count_nonzero(closed))
        left = left[~closed]
    return +counted


OVERRIDES = Filter("override", PendingCode.NODES_UNAVAILABLE, _is_closed, _words)
