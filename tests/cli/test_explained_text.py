"""What people read in an explanation is words, not keys, and each sentence stands once."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.cli.render.explain_attempts import Attempts, step_words
from durable.cli.render.explain_slots import bindings_in_words, ends_in_words, numbered
from durable.cli.render.words import counted
from durable.explain.attempt import AttemptAccount, StepAccount
from durable.explain.ends import End, EndAccount
from durable.explain.explanation import SlotAccount
from durable.model.ids import NodeId, RegionId
from durable.model.pending import Pending, PendingCode
from durable.model.states import BindingState
from durable.scheduling.proposal import Candidate, Rejection
from durable.signals.status import Owner

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
FULL = Pending(code=PendingCode.CAPACITY, sentence="No node has room: 2 of 2 nodes: 2 full")


def serving(slot: int, **other: Any) -> SlotAccount:
    values: dict[str, Any] = {
        "slot": slot,
        "node": NodeId(f"n{slot}"),
        "state": BindingState.SERVING,
        "attempt": 1,
        "token": slot + 1,
        "since": NOON,
        "evidence": "probe",
        "owner": Owner.NOBODY,
    }
    return SlotAccount(**{**values, **other})


def failed(slot: int, evidence: str, tries: int = 2) -> EndAccount:
    return EndAccount(
        slot=slot,
        end=End.FAILED,
        node=NodeId("n1"),
        attempt=7,
        tries=tries,
        evidence=evidence,
        at=NOON,
    )


def attempt(number: int, **other: Any) -> AttemptAccount:
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
        "filtered": "2 of 2 nodes: 2 full",
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
    return AttemptAccount(**{**values, **other})


def refused(slot: int, said: str = "too late (late)") -> StepAccount:
    return StepAccount(
        slot=slot, step="bind", taken=False, node=None, said=said, version=1, at=NOON
    )


def told(attempts: Sequence[AttemptAccount], waits_for: str | None = None) -> list[str]:
    return [
        line
        for heading, lines in Attempts(waits_for).in_words(attempts)
        for line in (heading, *lines)
    ]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("reserve", "Reserve"),
        ("bind.2", "Bind"),
        ("release-stopped", "Release (stopped)"),
        ("release-node_lost.3", "Release (node lost)"),
    ],
)
def test_a_step_is_told_in_words(step: str, words: str) -> None:
    assert step_words(step) == words


def test_one_of_something_is_not_several() -> None:
    assert [counted(count, "slot") for count in (0, 1, 2, 1000)] == [
        "0 slots",
        "1 slot",
        "2 slots",
        "1,000 slots",
    ]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3], "Slot 3"),
        ([3, 4], "Slots 3 and 4"),
        ([0, 1, 2], "Slots 0 to 2"),
        ([0, 1, 2, 5, 7, 8, 9], "Slots 0 to 2, 5 and 7 to 9"),
    ],
)
def test_slots_in_a_row_are_told_by_the_first_and_the_last(numbers: list[int], words: str) -> None:
    assert numbered("Slot", numbers) == words


def test_slots_in_the_same_state_are_told_in_one_sentence() -> None:
    late = NOON + timedelta(seconds=5)
    others = serving(3, state=BindingState.UNKNOWN, owner=Owner.AGENT, evidence="silent")
    gone = serving(4, state=BindingState.FAILED, owner=Owner.SCHEDULER, evidence="exit code 1")
    assert bindings_in_words([serving(0), serving(1), serving(2, since=late), others, gone]) == [
        "Slots 0 to 2 are serving since 2026-05-01 12:00:00Z, the last since 2026-05-01 12:00:05Z: "
        "probe; next: nobody: it is where it shall be",
        "  0 on n0, 1 on n1, 2 on n2",
        "Slot 3 is unknown on n3 since 2026-05-01 12:00:00Z: silent; next: the node's agent",
        "Slot 4 has failed on n4 since 2026-05-01 12:00:00Z: exit code 1; next: the regional "
        "worker's next decision",
    ]


def test_slots_that_failed_alike_are_told_in_one_sentence_and_each_with_its_place() -> None:
    ends = [failed(0, "exit code 3; see /a"), failed(1, "exit code 3; see /b"), failed(2, "killed")]
    assert ends_in_words(ends) == [
        "Slots 0 and 1 failed after 2 tries, at 2026-05-01 12:00:00Z: exit code 3",
        "  0 on n1 in attempt 7 (see /a), 1 on n1 in attempt 7 (see /b)",
        "Slot 2 failed on n1 in attempt 7 after 2 tries, at 2026-05-01 12:00:00Z: killed",
    ]


def test_attempts_that_found_the_same_are_told_once() -> None:
    lines = told([attempt(4), attempt(5), attempt(6), attempt(7, feasible=1, pending=None)])
    assert lines[0] == "Attempts 4 to 6, decided from 2026-05-01 12:00:04Z to 2026-05-01 12:00:06Z"
    assert lines[1].startswith("Attempt 6: Policy revision 1; cache version 6")
    assert "Attempt 7, decided at 2026-05-01 12:00:07Z" in lines
    assert str(lines).count("No node has room") == 1
    assert f"Left waiting 2: {FULL}" in lines
    assert "Refused: 2 of 2 nodes: 2 full" in lines, "of the last, whose wait does not say it"


def test_what_the_queue_waits_for_is_not_told_again() -> None:
    lines = told([attempt(1)], waits_for=str(FULL))
    assert "Left waiting 2: as above" in lines
    assert not [line for line in lines if "2 full" in line]


def test_a_sentence_of_an_earlier_attempt_is_referred_to() -> None:
    lines = told([attempt(1), attempt(2, feasible=1), attempt(3)])
    assert str(lines).count("No node has room") == 1
    assert lines.count("Left waiting 2: as in attempt 1") == 2
    assert not [line for line in lines if line.startswith("Candidate")], "there are none"


def test_candidates_with_the_same_scores_and_slots_refused_alike_are_told_together() -> None:
    liked = [Candidate(node=NodeId(f"n{n}"), total=1.5, scores={"cost": 1.5}) for n in (1, 2)]
    better = Candidate(node=NodeId("n3"), total=2.0, scores={"cost": 2.0})
    steps = (refused(0), refused(1), refused(4, "gone (gone)"))
    same = {"candidates": (better, *liked)}
    lines = told([attempt(1, **same, steps=steps), attempt(2, **same, feasible=1)])
    assert "Candidate n3: 2 (cost 2)" in lines
    assert "Candidates n1, n2: 1.5 (cost 1.5)" in lines
    assert lines.count("Candidates: as in attempt 1") == 1
    assert "Bind of slots 0 and 1: refused, too late (late)" in lines
    assert "Bind of slot 4: refused, gone (gone)" in lines
