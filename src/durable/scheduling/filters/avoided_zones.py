"""Zones that an override avoids take no new work while it is in force."""

from collections import Counter

from durable.model.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, count_by_id
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _is_avoided(working: WorkingSet, rows: RowSelection) -> Mask | None:
    avoided = working.request.avoid_zones
    return working.in_zones(rows, avoided) if avoided else None


def _words(working: WorkingSet, rows: Rows) -> Counter[str]:
    names = working.snapshot.zones.values
    return count_by_id(working.columns.zone[rows], lambda zone: f"zone {names[zone]} avoided")


AVOIDED_ZONES = Filter("avoided_zone", PendingCode.NODES_UNAVAILABLE, _is_avoided, _words)
