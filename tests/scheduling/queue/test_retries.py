"""What waits is decided again by itself: soon at first, and never later than the resync period."""

import pytest

from durable.model.placement.pending_reasons import NEEDS_A_CHANGE, PendingCode
from durable.scheduling.policies import first_policy
from durable.scheduling.queue.retries import MOMENT_SECONDS, RETRIES_PER_SECOND, retry_after_seconds
from tests.model.pending import pending

POLICY = first_policy()
FIRST, LONGEST = POLICY.retry_first_seconds, POLICY.retry_longest_seconds


def wait(
    code: PendingCode = PendingCode.CAPACITY,
    *may_return: float,
    tries: int = 0,
    queued: int = 1,
    seed: str = "a",
) -> float:
    reason = pending(code, "why")
    return retry_after_seconds(
        POLICY, reason, tries=tries, queued=queued, seed=seed, may_return=may_return
    )


def about(seconds: float) -> object:
    """Up to a quarter less, for the jitter."""
    return pytest.approx(seconds * 0.875, rel=0.15)


def test_the_first_retries_come_soon_and_each_waits_longer() -> None:
    waits = [wait(tries=tries) for tries in range(4)]
    assert waits == [about(FIRST * 2**tries) for tries in range(4)]


@pytest.mark.parametrize("code", PendingCode)
def test_nothing_waits_longer_than_the_resync_period(code: PendingCode) -> None:
    assert 0 < wait(code, tries=1_000, queued=10**6) <= LONGEST


@pytest.mark.parametrize("code", sorted({*NEEDS_A_CHANGE, PendingCode.REGION_FENCED}))
def test_what_only_a_change_can_help_waits_for_the_longest_at_once(code: PendingCode) -> None:
    assert wait(code) == about(LONGEST)


def test_many_that_wait_decide_no_more_often_together_than_few() -> None:
    queued = int(100 * RETRIES_PER_SECOND)
    assert wait(queued=queued) == about(100)
    assert wait(PendingCode.CONFLICTS, queued=queued) == about(FIRST)


def test_what_began_together_does_not_stay_together() -> None:
    waits = {wait(tries=20, seed=str(number)) for number in range(100)}
    assert len(waits) > 90
    assert max(waits) - min(waits) > LONGEST / 10


def test_the_next_look_is_not_later_than_the_moment_a_slot_may_return() -> None:
    assert wait(PendingCode.CRASHED, 30.0, 40.0, tries=20) == 30.0 + MOMENT_SECONDS
    assert wait(PendingCode.CRASHED, -1.0, tries=20) == about(LONGEST)
    assert wait(PendingCode.CRASHED, 59.0) == about(FIRST)
