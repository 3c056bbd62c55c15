"""How a job ends: given up after too many failures, and in time or too late."""

from collections.abc import Collection, Iterable
from datetime import datetime

from durable.model.work.share import ShareReport, completed_in
from durable.model.work.workload import WorkloadSpec


def why_given_up(spec: WorkloadSpec, reports: Collection[ShareReport]) -> str | None:
    """Why a job is ended before its slots are: they failed too often in all."""
    most = None if spec.job is None else spec.job.max_failures
    failures = sum(report.failures for report in reports)
    completed = len(completed_in(reports))
    if most is None or failures < most or completed >= spec.replicas:
        return None
    often = "once" if failures == 1 else f"{failures} times"
    return f"its slots failed {often} in all, and max_failures is {most}"


def has_missed(due_at: datetime, now: datetime, ends: Iterable[datetime | None]) -> bool:
    """Whether any part of it ended too late, or has not ended although it is time.

    It counts when the parts ended, not when that was read.
    """
    return any(due_at <= (now if end is None else end) for end in ends)
