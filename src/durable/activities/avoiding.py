"""Nodes to which a slot does not go back for a while because it crashed there."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from durable.activities.steps import CrashOn
from durable.model.policy import Policy

# The clocks of workflows and of the authority are not read at the same moment.
MOMENT_SECONDS = 0.1


def avoided_until(crash: CrashOn, policy: Policy) -> datetime:
    return crash.at + timedelta(seconds=policy.crash_pair_seconds)


def retry_after_seconds(
    policy: Policy,
    tries: int,
    crashes: Iterable[CrashOn],
    waiting: Collection[int],
    now: float,
) -> float:
    """The backoff, but not beyond the moment at which a slot may go back to where it crashed."""
    backoff = min(policy.retry_longest_seconds, policy.retry_first_seconds * 2.0 ** min(tries, 20))
    left = [
        avoided_until(crash, policy).timestamp() - now for crash in crashes if crash.slot in waiting
    ]
    return min([backoff, *(seconds + MOMENT_SECONDS for seconds in left if seconds > 0)])
