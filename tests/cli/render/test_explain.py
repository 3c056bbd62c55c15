"""Slots in the same state for the same reason are described in one line."""

from datetime import UTC, datetime, timedelta
from typing import Any

from durable.cli.render.explain import describe_ended, describe_slots
from durable.explain.slots import EndedSlot, SlotEnd
from durable.model.ids import NodeId
from durable.model.placement.claims import ObservedSlot
from durable.model.states import BindingState
from durable.model.work.phases import Owner

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def serving(slot: int, **other: Any) -> ObservedSlot:
    values: dict[str, Any] = {
        "slot": slot,
        "node": NodeId(f"n{slot}"),
        "state": BindingState.SERVING,
        "attempt": 1,
        "token": slot + 1,
        "since": NOON,
        "evidence": "probe",
    }
    return ObservedSlot(**{**values, **other})


def failed(slot: int, evidence: str, logs: str | None = None, tries: int = 2) -> EndedSlot:
    return EndedSlot(
        slot=slot,
        end=SlotEnd.FAILED,
        node=NodeId("n1"),
        attempt=7,
        tries=tries,
        evidence=evidence,
        log_directory=logs,
        at=NOON,
    )


def test_slots_in_the_same_state_are_described_in_one_line() -> None:
    late = NOON + timedelta(seconds=5)
    others = serving(3, state=BindingState.UNKNOWN, evidence="silent")
    gone = serving(4, state=BindingState.FAILED, evidence="exit code 1")
    assert describe_slots([serving(0), serving(1), serving(2, since=late), others, gone]) == [
        "Slots 0 to 2: serving since 2026-05-01 12:00:00Z (the last since 2026-05-01 12:00:05Z): "
        "probe",
        "  0 on n0, 1 on n1, 2 on n2",
        f"Slot 3 on n3: unknown since 2026-05-01 12:00:00Z: silent; next to act: {Owner.AGENT}",
        "Slot 4 on n4: failed since 2026-05-01 12:00:00Z: exit code 1; next to act: "
        f"{Owner.SCHEDULER}",
    ]


def test_slots_that_failed_alike_are_described_in_one_line_and_each_with_its_place() -> None:
    ends = [failed(0, "exit code 3", "/a"), failed(1, "exit code 3", "/b"), failed(2, "killed")]
    assert describe_ended(ends) == [
        "Slots 0 and 1 failed after 2 tries at 2026-05-01 12:00:00Z: exit code 3",
        "  0 on n1 in attempt 7 (see /a), 1 on n1 in attempt 7 (see /b)",
        "Slot 2 failed on n1 in attempt 7 after 2 tries at 2026-05-01 12:00:00Z: killed",
    ]
