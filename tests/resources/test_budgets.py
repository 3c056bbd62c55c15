"""A budget says whether it is kept, drawn on, used up or past its time."""

from datetime import UTC, datetime, timedelta

import pytest

from durable.model.fleet.capacity import RecoveryBudget
from durable.model.ids import BudgetId, IncidentId, RegionId
from durable.model.resources import Resources
from durable.resources.fleet import budget_row

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("incident", "drawn", "hours", "state"),
    [
        (None, 0, 1, "kept"),
        ("east-2", 500, 1, "open"),
        ("east-2", 1_000, 1, "exhausted"),
        ("east-2", 500, 0, "expired"),
        (None, 0, -1, "expired"),
    ],
)
def test_a_budget_says_how_it_stands(
    incident: str | None, drawn: int, hours: int, state: str
) -> None:
    budget = RecoveryBudget(
        region=RegionId("west"),
        budget=BudgetId("headroom"),
        amount=Resources.of(1_000, 0),
        used=Resources.of(drawn, 0),
        expires_at=NOW + timedelta(hours=hours),
        incident=None if incident is None else IncidentId(incident),
    )
    assert budget_row(budget, NOW).state == state
