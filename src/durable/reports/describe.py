"""The one way to a report: by the status that a workflow's query answers."""

from datetime import datetime

from durable.reports.drain import describe_drain
from durable.reports.override import describe_override
from durable.reports.policy import describe_policy
from durable.reports.recovery import describe_recovery
from durable.reports.report import Report
from durable.reports.workload import describe_placement, describe_workload
from durable.signals.drains import DrainStatus
from durable.signals.overrides import OverrideStatus
from durable.signals.policies import PolicyStatus
from durable.signals.recoveries import RecoveryStatus
from durable.signals.status import PlacementStatus, WorkloadStatus

Status = (
    WorkloadStatus | PlacementStatus | DrainStatus | OverrideStatus | PolicyStatus | RecoveryStatus
)


def describe(status: Status, now: datetime) -> Report:
    """What people read of it, as it is at this moment."""
    match status:
        case WorkloadStatus():
            return describe_workload(status)
        case PlacementStatus():
            return describe_placement(status)
        case DrainStatus():
            return describe_drain(status)
        case OverrideStatus():
            return describe_override(status, now)
        case PolicyStatus():
            return describe_policy(status)
        case RecoveryStatus():
            return describe_recovery(status)
