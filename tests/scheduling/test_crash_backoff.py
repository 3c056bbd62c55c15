"""A slot that may go back to a node is looked at then, however long its backoff has become."""

from datetime import UTC, datetime, timedelta

import pytest

from durable.model.claims import Crash
from durable.model.ids import NodeId
from durable.scheduling.crash_backoff import (
    MOMENT_SECONDS,
    avoided_until,
    retry_after_seconds,
    still_avoided,
)
from durable.scheduling.policies import first_policy

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = first_policy()


def crash(slot: int = 0, *, seconds_ago: float = 0) -> Crash:
    return Crash(slot=slot, node=NodeId("n1"), at=NOON - timedelta(seconds=seconds_ago))


def look(*crashes: Crash, tries: int = 0) -> float:
    return retry_after_seconds(POLICY, tries, crashes, (0,), NOON.timestamp())


def test_a_node_is_avoided_for_as_long_as_the_policy_says() -> None:
    end = avoided_until(crash(), POLICY)
    assert end - NOON == timedelta(seconds=POLICY.crash_pair_seconds)


def test_the_next_look_is_not_later_than_the_end_of_the_ban() -> None:
    half = POLICY.crash_pair_seconds / 2
    assert look(tries=20) == POLICY.retry_longest_seconds
    assert look(crash(seconds_ago=half), tries=20) == pytest.approx(half + MOMENT_SECONDS)


def test_the_first_looks_come_as_soon_as_ever() -> None:
    assert look(crash(seconds_ago=1)) == POLICY.retry_first_seconds


def test_neither_an_old_crash_nor_that_of_another_slot_counts() -> None:
    old = crash(seconds_ago=POLICY.crash_pair_seconds)
    assert look(old, crash(slot=1, seconds_ago=59), tries=20) == POLICY.retry_longest_seconds


def test_a_crash_counts_until_the_policy_lets_the_slot_go_back() -> None:
    old, young = crash(seconds_ago=POLICY.crash_pair_seconds), crash(slot=1, seconds_ago=1)
    assert still_avoided([old, young], POLICY, NOON.timestamp()) == (young,)
