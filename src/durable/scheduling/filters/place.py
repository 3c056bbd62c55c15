"""Where work may run at all: an open region, residency, tenancy and zones that are avoided."""

from collections import Counter

import numpy as np

from durable.model.pending_reasons import PendingCode
from durable.scheduling.filters.filter import Filter, by_number, says
from durable.scheduling.question import Question, Some
from durable.scheduling.snapshot.columns import Mask
from durable.scheduling.snapshot.interning import NO_ID
from durable.scheduling.snapshot.rows import Rows


def _every_node(question: Question, rows: Some) -> Mask:
    return np.ones_like(question.columns.live[rows])


def _region_closed(question: Question, rows: Some) -> Mask | None:
    return None if question.snapshot.is_open else _every_node(question, rows)


def _outside_regions(question: Question, rows: Some) -> Mask | None:
    regions = question.wish.spec.requirements.regions
    allowed = not regions or question.snapshot.region in regions
    return None if allowed else _every_node(question, rows)


def _region_words(question: Question, rows: Rows) -> Counter[str]:
    return Counter({f"region {question.snapshot.region} outside its residency": len(rows)})


def _outside_zones(question: Question, rows: Some) -> Mask | None:
    allowed = question.wish.spec.requirements.zones
    return ~_in_zones(question, rows, allowed) if allowed else None


def _zone_words(question: Question, rows: Rows) -> Counter[str]:
    names = question.snapshot.zones.things
    zones = question.columns.zone[rows]
    return by_number(zones, lambda zone: f"zone {names[zone]} outside its residency")


def _of_another_tenant(question: Question, rows: Some) -> Mask:
    owner = question.columns.dedicated_to[rows]
    tenant = question.snapshot.tenants.find(question.wish.tenant)
    # A tenant that owns no node has the number of nobody, which shared nodes have too.
    own = (owner == tenant) & (owner != NO_ID)
    return ~own if question.wish.spec.requirements.dedicated else ~own & (owner != NO_ID)


def _tenancy_words(question: Question, rows: Rows) -> Counter[str]:
    names = question.snapshot.tenants.things

    def words(owner: int) -> str:
        return "shared, not dedicated" if owner == NO_ID else f"kept for {names[owner]}"

    return by_number(question.columns.dedicated_to[rows], words)


def _avoided(question: Question, rows: Some) -> Mask | None:
    avoided = question.wish.avoid_zones
    return _in_zones(question, rows, avoided) if avoided else None


def _avoided_words(question: Question, rows: Rows) -> Counter[str]:
    names = question.snapshot.zones.things
    return by_number(question.columns.zone[rows], lambda zone: f"zone {names[zone]} avoided")


def _in_zones(question: Question, rows: Some, zones: tuple[str, ...]) -> Mask:
    numbers = [question.snapshot.zones.find(zone) for zone in zones]
    return np.isin(question.columns.zone[rows], numbers)


REGION_OPEN = Filter(
    "region_fenced", PendingCode.REGION_FENCED, _region_closed, says("region fenced")
)
REGIONS = Filter("residency", PendingCode.REQUIREMENTS, _outside_regions, _region_words)
ZONES = Filter("residency", PendingCode.REQUIREMENTS, _outside_zones, _zone_words)
TENANCY = Filter("tenancy", PendingCode.REQUIREMENTS, _of_another_tenant, _tenancy_words)
AVOIDED_ZONES = Filter("avoided_zone", PendingCode.NODES_UNAVAILABLE, _avoided, _avoided_words)
