"""What the sender of a message to an override is told about regions that were not reached."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.activities.override import Spread
from durable.model.ids import RegionId
from durable.model.overrides.override import Override
from durable.workflows.override.workflow import OverrideMemory, answer_of

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
EAST, WEST = RegionId("east"), RegionId("west")
ENDED: dict[str, Any] = {"state": "revoked", "ended_at": NOON, "number": 2}
REACHED = Spread(number=2, regions=(EAST, WEST))
PARTLY = Spread(number=2, regions=(EAST,), unreachable={WEST: "no answer"})
OLD = Spread(number=1, regions=(EAST, WEST))
IN_WEST = "It may still be obeyed in west until the news arrives, at the latest until 2030-01-01 13"
ANYWHERE = "It may still be obeyed in the regions until the news arrives, at the latest until"


def memory(spread: Spread | None, **values: Any) -> OverrideMemory:
    usual = {
        "id": "o-1", "kind": "hold", "scope": {"tenant": "risk", "workload": "api"}, "effect": {},
        "actor": "ann", "reason": "INC-1", "ttl": "1h", "state": "active", "proposed_at": NOON,
        "activated_at": NOON, "expires_at": NOON + timedelta(hours=1), "number": 2,
        "latest_expiry": NOON + timedelta(hours=4),
    }  # fmt: skip
    return OverrideMemory(override=Override.model_validate({**usual, **values}), spread=spread)


@pytest.mark.parametrize(
    ("spread", "values", "told"),
    [
        (REACHED, ENDED, "Done. It no longer has any effect."),
        (PARTLY, ENDED, f"Done. {IN_WEST}:00:00Z."),
        (OLD, ENDED, f"Done. {ANYWHERE} 2030-01-01 13:00:00Z."),
        (None, ENDED, f"Done. {ANYWHERE} 2030-01-01 13:00:00Z."),
        (REACHED, {}, "Done."),
        (PARTLY, {}, "Done. Not reached yet, and notified later: west."),
        (OLD, {}, "Done. Not reached yet, and notified later: the regions."),
        (None, {"state": "proposed", "activated_at": None}, "Done."),
        (None, {**ENDED, "state": "rejected", "activated_at": None}, "Done."),
    ],
)
def test_the_answer_promises_only_what_regions_know(
    spread: Spread | None, values: dict[str, Any], told: str
) -> None:
    assert answer_of("Done.", memory(spread, **values)) == told
