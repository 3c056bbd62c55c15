"""Work runs only in the regions and zones that its requirements allow."""

from collections import Counter

from durable.model.placement.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, count_by_id, every_node
from durable.scheduling.snapshot.columns import Mask, Rows
from durable.scheduling.working_set import RowSelection, WorkingSet


def _outside_regions(working: WorkingSet, rows: RowSelection) -> Mask | None:
    regions = working.request.spec.requirements.regions
    allowed = not regions or working.snapshot.region in regions
    return None if allowed else every_node(working, rows)


def _region_words(working: WorkingSet, rows: Rows) -> Counter[str]:
    return Counter({f"region {working.snapshot.region} outside its residency": len(rows)})


def _outside_zones(working: WorkingSet, rows: RowSelection) -> Mask | None:
    allowed = working.request.spec.requirements.zones
    return ~working.in_zones(rows, allowed) if allowed else None


def _zone_words(working: WorkingSet, rows: Rows) -> Counter[str]:
    names = working.snapshot.zones.values
    zones = working.columns.zone[rows]
    return count_by_id(zones, lambda zone: f"zone {names[zone]} outside its residency")


REGIONS = Filter("residency", PendingCode.REQUIREMENTS, _outside_regions, _region_words)
ZONES = Filter("residency", PendingCode.REQUIREMENTS, _outside_zones, _zone_words)
