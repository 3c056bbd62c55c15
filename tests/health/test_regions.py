"""Which regions are found to take no placement now, or have been seen to be impaired."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.authority.reads.readiness import RegionReadiness
from durable.health.regions import LASTING, impaired, unready
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import RegionId
from durable.model.recovery.detection import LossKind, RegionCondition
from durable.model.states import RegionState

EAST = RegionId("us-east")
AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seen", "codes"),
    [
        ({}, []),
        ({"live": 0}, ["region_without_nodes"]),
        ({"state": RegionState.FENCED}, ["region_fenced"]),
        ({"lease_lapsed_at": AT}, ["region_lease_lapsed"]),
        # The lease of a fenced region is to lapse.
        ({"lease_lapsed_at": AT, "state": RegionState.FENCED}, ["region_fenced"]),
        ({"overdue": 1, "overdue_since": AT}, ["claims_overdue"]),
    ],
)
def test_what_keeps_a_region_from_taking_a_placement(
    seen: dict[str, Any], codes: list[str]
) -> None:
    well: dict[str, Any] = {
        "region": EAST, "state": RegionState.OPEN, "nodes": 3, "live": 3, "simulated_away": 0,
        "overdue": 0, "overdue_since": None,
    }  # fmt: skip
    assert [one.code for one in unready([RegionReadiness(**(well | seen))])] == codes


@pytest.mark.parametrize(
    ("kind", "lasted", "state", "is_found"),
    [
        (LossKind.ZONE, LASTING, RegionState.OPEN, True),
        (LossKind.OBSERVER, LASTING, RegionState.OPEN, True),
        (LossKind.MAINTENANCE, LASTING, RegionState.OPEN, True),
        (LossKind.REGION, LASTING, RegionState.SUSPECTED, True),
        (LossKind.ZONE, LASTING / 2, RegionState.OPEN, False),
        (LossKind.NODE, LASTING, RegionState.OPEN, False),
        (LossKind.HEALTHY, LASTING, RegionState.OPEN, False),
        (LossKind.REGION, LASTING, RegionState.FENCED, False),
    ],
)
def test_what_a_region_is_taken_for_is_found_where_it_matters_and_lasts(
    kind: LossKind, lasted: timedelta, state: RegionState, is_found: bool
) -> None:
    seen = RegionCondition(kind=kind, sentence="RegionCondition.", since=AT - lasted)
    fact = RegionFact(region=EAST, epoch=1, state=state, since=AT, seen=seen, read_at=AT)
    assert [one.names for one in impaired([fact])] == ([(EAST,)] if is_found else [])
