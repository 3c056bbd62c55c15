"""When a request that waits is decided again by itself; wakeups come sooner."""

from collections.abc import Iterable
from zlib import crc32

from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import PendingCode
from durable.model.policy.policy import Policy

# The clocks of workflows and of the authority are not read at the same moment.
MOMENT_SECONDS = 0.1
# All that wait in a region together decide about this often by themselves, however many they are.
RETRIES_PER_SECOND = 2.0
# Waits that pass by themselves within moments, so that many others are no reason to wait longer.
_PASSING = frozenset({PendingCode.QUEUED, PendingCode.CONFLICTS})
# Retries are spread over the last part of the backoff: what began together must not stay together.
_JITTER = 0.25


def retry_after_seconds(
    policy: Policy,
    pending: Pending,
    *,
    tries: int,
    queued: int,
    seed: str,
    may_return: Iterable[float] = (),
) -> float:
    """The backoff: longer with each try and with each request that waits as well.

    What only a change can help waits longest, and so does a region that is fenced: a wakeup tells
    of the change. Never longer than the policy's limit, which is the resync period of the queue;
    and not beyond the moment, one of those in `may_return`, at which a slot may go back to where it
    crashed.
    """
    longest = policy.retry_longest_seconds
    backoff = policy.retry_first_seconds * 2.0 ** min(tries, 20)
    if not pending.waiting_helps or pending.code is PendingCode.REGION_FENCED:
        backoff = longest
    elif pending.code not in _PASSING:
        backoff = max(backoff, queued / RETRIES_PER_SECOND)
    jitter = 1.0 - _JITTER * crc32(seed.encode()) / 2**32
    moments = [seconds + MOMENT_SECONDS for seconds in may_return if seconds > 0]
    return min([jitter * min(longest, backoff), *moments])
