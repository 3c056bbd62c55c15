"""How long a slot stays away from a node on which it crashed."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from durable.model.placement.claims import Crash
from durable.model.policy.policy import Policy


def avoided_until(crash: Crash, policy: Policy) -> datetime:
    return crash.at + timedelta(seconds=policy.crash_pair_seconds)


def still_avoided(crashes: Iterable[Crash], policy: Policy, now: float) -> tuple[Crash, ...]:
    """The crashes that still keep their slots away from their nodes."""
    return tuple(one for one in crashes if avoided_until(one, policy).timestamp() > now)
