"""Attempts are described in words, not keys, and each sentence once."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.cli.render.attempts import AttemptDescriber
from durable.explain.attempts import AttemptExplanation, StepOutcome
from durable.model.ids import NodeId, RegionId
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import PendingCode, Rejection
from durable.model.refusal import Refusal, RefusalCode
from durable.scheduling.request import Candidate
from tests.model.pending import pending

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FULL = pending(PendingCode.CAPACITY, "No node has room: 2 of 2 nodes: 2 full")
EXPIRED = Refusal(code=RefusalCode.LEASE_EXPIRED, sentence="Too late.")
GONE = Refusal(code=RefusalCode.NOT_BOUND, sentence="Gone.")


def attempt(number: int, **other: Any) -> AttemptExplanation:
    """One that left both slots waiting."""
    values: dict[str, Any] = {
        "region": RegionId("north"),
        "attempt": number,
        "decided_at": NOON + timedelta(seconds=number),
        "policy_revision": 1,
        "cache_version": number,
        "cache_age_seconds": 0.0,
        "nodes": 2,
        "feasible": 0,
        "sampled": None,
        "rejected": "2 of 2 nodes: 2 full",
        "rejections": (Rejection(code="full", nodes=2, words="full"),),
        "candidates": (),
        "grant_before": None,
        "grant_after": None,
        "room_before": None,
        "placed": (),
        "unplaced": (0, 1),
        "pending": FULL,
        "steps": (),
    }
    return AttemptExplanation(**{**values, **other})


def step(
    slot: int, refusal: Refusal | None, step: str = "bind", cause: str | None = None
) -> StepOutcome:
    token, node = (None, None) if refusal else (slot + 1, NodeId("n1"))
    return StepOutcome(
        slot=slot,
        step=step,
        cause=cause,
        token=token,
        node=node,
        refusal=refusal,
        version=1,
        at=NOON,
    )


def described(attempts: Sequence[AttemptExplanation], pending: Pending | None = None) -> list[str]:
    return [
        line
        for some in AttemptDescriber(pending).describe(attempts)
        for line in (f"{some.title}, {some.decided}", *some.lines)
    ]


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("reserve", None, "reserve"),
        ("release", "stopped", "release (stopped)"),
        ("release", "node_lost", "release (node lost)"),
    ],
)
def test_a_step_is_described_with_its_cause(name: str, cause: str | None, words: str) -> None:
    lines = described([attempt(1, steps=(step(0, None, name, cause),))])
    assert f"Committed for 1 slot: {words} at version 1" in lines


def test_attempts_that_found_the_same_are_described_once() -> None:
    lines = described([attempt(4), attempt(5), attempt(6), attempt(7, feasible=1, pending=None)])
    assert lines[0] == "Attempts 4 to 6, decided from 2026-05-01 12:00:04Z to 2026-05-01 12:00:06Z"
    assert lines[1].startswith("Inputs of attempt 6: policy revision 1, cache version 6")
    assert "Attempt 7, decided at 2026-05-01 12:00:07Z" in lines
    assert str(lines).count("No node has room") == 1
    assert f"Not placed, 2 slots: {FULL}" in lines
    assert "Rejected: 2 of 2 nodes: 2 full" in lines, "of the last, whose wait does not say it"


def test_the_reason_of_the_wait_is_not_repeated() -> None:
    lines = described([attempt(1)], pending=FULL)
    assert "Not placed, 2 slots: as above" in lines
    assert not [line for line in lines if "2 full" in line]


def test_a_sentence_of_an_earlier_attempt_is_referred_to() -> None:
    lines = described([attempt(1), attempt(2, feasible=1), attempt(3)])
    assert str(lines).count("No node has room") == 1
    assert lines.count("Not placed, 2 slots: as in attempt 1") == 2
    assert not [line for line in lines if line.startswith("Candidate")], "there are none"


def test_candidates_with_the_same_scores_and_slots_refused_alike_are_described_together() -> None:
    liked = [Candidate(node=NodeId(f"n{n}"), total=1.5, scores={"cost": 1.5}) for n in (1, 2)]
    better = Candidate(node=NodeId("n3"), total=2.0, scores={"cost": 2.0})
    steps = (step(0, EXPIRED), step(1, EXPIRED), step(4, GONE))
    same = {"candidates": (better, *liked)}
    lines = described([attempt(1, **same, steps=steps), attempt(2, **same, feasible=1)])
    assert "Candidate n3: score 2 (cost 2)" in lines
    assert "Candidates n1, n2: score 1.5 (like the first, except cost 1.5)" in lines
    assert lines.count("Candidates: as in attempt 1") == 1
    assert f"Bind refused for slots 0 and 1: {EXPIRED}" in lines
    assert f"Bind refused for slot 4: {GONE}" in lines


def test_steps_committed_for_as_many_slots_share_a_line() -> None:
    steps = (*(step(slot, None, name) for name in ("reserve", "bind") for slot in (0, 1)),)
    lines = described([attempt(1, steps=(*steps, step(0, None, "start")))])
    assert lines[-2:] == [
        "Committed for 2 slots: reserve at version 1, bind at version 1",
        "Committed for 1 slot: start at version 1",
    ]
