"""What the objective asks: of what was lost, and of what would be. Pure.

Readiness, a recovery's report and the moment at which a workload has recovered all count alike: of
the replicas that a critical service loses, four must serve again in healthy regions, or all of
them if fewer were lost. What other regions had before says nothing about a recovery.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from durable.model.recovery.detection import RecoveryPolicy
from durable.model.work.workload import WorkloadKind


def is_critical(priority: int, kind: WorkloadKind, policy: RecoveryPolicy) -> bool:
    """Whether the objective is about it: a job is done one day, and does not serve."""
    return kind is WorkloadKind.SERVICE and priority >= policy.critical_priority


def needed_replicas(lost: int, policy: RecoveryPolicy) -> int:
    """How many of so many lost replicas must serve again."""
    return min(policy.objective_replicas, lost)


def recovered_at(
    lost: Collection[int],
    serving_since: Mapping[int, datetime],
    policy: RecoveryPolicy,
    lost_at: datetime,
) -> datetime | None:
    """When enough of the lost slots served again elsewhere; None if they do not yet."""
    since = sorted(serving_since[slot] for slot in set(lost) if slot in serving_since)
    needed = needed_replicas(len(set(lost)), policy)
    if len(since) < needed:
        return None
    return lost_at if needed == 0 else max(lost_at, since[needed - 1])
