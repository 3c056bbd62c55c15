"""How long a slot stays away from a node on which it crashed, and when it is tried again."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from durable.model.claims import Crash
from durable.model.policy import Policy

# The clocks of workflows and of the authority are not read at the same moment.
MOMENT_SECONDS = 0.1


def avoided_until(crash: Crash, policy: Policy) -> datetime:
    return crash.at + timedelta(seconds=policy.crash_pair_seconds)


def still_avoided(crashes: Iterable[Crash], policy: Policy, now: float) -> tuple[Crash, ...]:
    """The crashes that still keep their slots away from their nodes."""
    return tuple(one for one in crashes if avoided_until(one, policy).timestamp() > now)


def retry_after_seconds(
    policy: Policy,
    tries: int,
    crashes: Iterable[Crash],
    waiting: Collection[int],
    now: float,
) -> float:
    """The backoff, but not beyond the moment at which a slot may go back to where it crashed."""
    backoff = min(policy.retry_longest_seconds, policy.retry_first_seconds * 2.0 ** min(tries, 20))
    left = [
        avoided_until(crash, policy).timestamp() - now for crash in crashes if crash.slot in waiting
    ]
    return min([backoff, *(seconds + MOMENT_SECONDS for seconds in left if seconds > 0)])
