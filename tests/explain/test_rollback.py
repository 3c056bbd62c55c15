"""Why a generation that somebody applied is not wanted any more."""

from datetime import UTC, datetime

import pytest

from durable.explain.rollback import why_rolled_back
from durable.model.ids import ActorId
from durable.model.work.rollout import GenerationOutcome, GenerationRecord

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def record(generation: int, outcome: str, reason: str = "") -> GenerationRecord:
    return GenerationRecord(
        generation=generation,
        spec={},
        actor=ActorId("ann"),
        reason="deploy",
        admitted_at=NOON,
        outcome=GenerationOutcome(outcome),
        outcome_reason=reason,
    )


HISTORY = [
    record(1, "complete"),
    record(2, "superseded", "by generation 3"),
    record(3, "rolled_back", "it was bad"),
]


@pytest.mark.parametrize(
    ("applied", "wanted", "why"),
    [
        (3, 1, "was rolled back: it was bad; generation 1 is wanted again."),
        (2, 1, "was superseded by generation 3, which was rolled back; generation 1 is"),
        (3, 4, "was rolled back: it was bad; generation 4 is wanted instead."),
        # A newer one took its place, which is what whoever waits gets.
        (2, 3, None),
        # Still on its way, or forgotten.
        (1, 2, None),
        (9, 1, None),
    ],
)
def test_what_was_undone_is_told_apart_from_what_was_superseded(
    applied: int, wanted: int, why: str | None
) -> None:
    found = why_rolled_back(HISTORY, applied, wanted)
    assert found is None if why is None else found is not None and found.startswith(why)
