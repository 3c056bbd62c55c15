"""What of a counted request is still undone, after its answer or the memory of it was lost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.activities.steps import PlacementKey
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.operators.rights import SlotEffect
from durable.model.work.phases import SlotPhase
from durable.signals.payloads import EvictSlots, RetryPlacement
from durable.workflows.placement.messages import PlacementMessages
from durable.workflows.placement.slots import Leave, SlotState
from durable.workflows.placement.state import PlacementState

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
WHO: dict[str, Any] = {"actor": "ann", "reason": "INC-42", "request_id": "1"}
KEY = PlacementKey(
    region=RegionId("east"), tenant=TenantId("risk"), workload=WorkloadName("api"), generation=1
)


def placement(slot: SlotState, **state: Any) -> PlacementMessages:
    messages = PlacementMessages()
    messages._state = PlacementState(KEY, NOW, **state)  # pyright: ignore[reportPrivateUsage]
    messages._state.slots.by_number = {0: slot}  # pyright: ignore[reportPrivateUsage]
    return messages


@pytest.mark.parametrize(
    ("slot", "force", "is_undone"),
    [
        ({"token": 7}, False, True),
        ({"token": 8}, False, False),  # it was placed again
        ({"token": None}, False, False),  # it waits to be placed again
        ({"token": 7, "leave": Leave.AGAIN}, False, False),
        ({"token": 7, "leave": Leave.AGAIN, "blocked": "too few"}, False, False),
        ({"token": 7, "leave": Leave.AGAIN, "blocked": "too few"}, True, True),
        ({"token": 7, "leave": Leave.AGAIN, "blocked": "too few", "is_forced": True}, True, False),
    ],
)
def test_an_eviction_is_undone_for_a_claim_that_stays(
    slot: dict[str, Any], force: bool, is_undone: bool
) -> None:
    found = SlotState(0, NOW, phase=SlotPhase.SERVING, **slot)
    undone = placement(found)._undone_by_evict(  # pyright: ignore[reportPrivateUsage]
        EvictSlots(**WHO, slots=(0,), force=force), SlotEffect(slots={0: 7})
    )
    assert undone == ([found] if is_undone else [])


@pytest.mark.parametrize(
    ("slot", "state", "is_undone"),
    [
        ({"crash_count": 2, "retry_at": LATER}, {}, True),
        ({"crash_count": 3, "retry_at": LATER}, {}, False),  # it was tried, and crashed again
        ({"crash_count": 2}, {}, False),  # it does not rest
        ({"crash_count": 2}, {"next_attempt": 5, "next_retry_at": LATER}, True),
        ({"crash_count": 2}, {"next_attempt": 6, "next_retry_at": LATER}, False),  # it was decided
        ({"crash_count": 2, "retry_at": LATER}, {"next_attempt": 6, "next_retry_at": LATER}, True),
        ({"crash_count": 2, "retry_at": LATER, "phase": SlotPhase.RESERVED}, {}, False),
    ],
)
def test_a_retry_is_undone_for_what_goes_on_resting(
    slot: dict[str, Any], state: dict[str, Any], is_undone: bool
) -> None:
    found = SlotState(0, NOW, **slot)
    undone = placement(found, **state)._undone_by_retry_now(  # pyright: ignore[reportPrivateUsage]
        RetryPlacement(**WHO), SlotEffect(slots={0: 2}, attempt=5)
    )
    assert undone == ([found] if is_undone else [])
