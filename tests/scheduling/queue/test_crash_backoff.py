"""A slot stays away from the node where it failed for as long as the policy says."""

from datetime import UTC, datetime, timedelta

from durable.model.ids import NodeId
from durable.model.placement.claims import Crash
from durable.scheduling.policies import first_policy
from durable.scheduling.queue.crash_backoff import avoided_until, still_avoided

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = first_policy()


def crash(slot: int = 0, *, seconds_ago: float = 0) -> Crash:
    return Crash(slot=slot, node=NodeId("n1"), at=NOON - timedelta(seconds=seconds_ago))


def test_a_node_is_avoided_for_as_long_as_the_policy_says() -> None:
    end = avoided_until(crash(), POLICY)
    assert end - NOON == timedelta(seconds=POLICY.crash_pair_seconds)


def test_a_crash_counts_until_the_policy_lets_the_slot_go_back() -> None:
    old, young = crash(seconds_ago=POLICY.crash_pair_seconds), crash(slot=1, seconds_ago=1)
    assert still_avoided([old, young], POLICY, NOON.timestamp()) == (young,)
