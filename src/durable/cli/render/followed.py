"""A workload that somebody waits for, how far it has come, and what is said if it is late."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from durable.client import Until
from durable.model.pending import Pending, PendingCode
from durable.model.workload import WorkloadKind, WorkloadManifest
from durable.signals.status import WorkloadStatus

STAGES = ("bound", "ready", "serving")
# So much of a reason is told that the advice after it is not cut off.
REASON_CHARACTERS = 200


@dataclass(frozen=True)
class Followed:
    """A workload that somebody waits for, and how far it shall come."""

    tenant: str
    name: str
    until: Until

    @classmethod
    def of(cls, manifest: WorkloadManifest) -> Self:
        is_job = manifest.spec.kind is WorkloadKind.JOB
        return cls(manifest.tenant, manifest.name, "complete" if is_job else "serving")

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


def counts_of(status: WorkloadStatus, until: Until) -> str:
    if until == "deleted":
        return f"{status.phase}, {status.bound} still bound"
    if until == "complete":
        return f"{status.bound} bound, {status.completed} complete of {status.wanted}"
    stages = ", ".join(f"{getattr(status, stage)} {stage}" for stage in STAGES)
    return f"{stages} of {status.wanted}"


def late(
    all_of: Sequence[Followed],
    last: Mapping[Followed, WorkloadStatus],
    within_seconds: float,
    stopping: str = "",
) -> str:
    """Which came not far enough, and why; one for which somebody must act is told first.

    `stopping` says what a deletion waits for, if that is known.
    """
    behind = [f for f in all_of if f not in last or not _has_come(last[f], f.until)] or [*all_of]
    stuck = [one for one in behind if _stuck_by(one, last.get(one)) is not None]
    told = (stuck or behind)[0]
    status, reason = last.get(told), _stuck_by(told, last.get(told))
    said = "it did not answer" if status is None else counts_of(status, told.until)
    wait = reason or (status.waits_for[0] if status is not None and status.waits_for else "")
    why = f" {stopping}" if stopping else f" It waits: {_shortened(wait)}" if wait else ""
    more = len(behind) - 1
    others = f", nor {'is' if more == 1 else 'are'} {more} more," if more else ""
    return (
        f"{told} is not {told.until}{others} after {within_seconds:.0f} s: {said}.{why} "
        f"{_next(told, reason)}; see durable explain {told}."
    )[:500]


def _stuck_by(followed: Followed, status: WorkloadStatus | None) -> str | None:
    """The first reason that waiting does not end; nothing of that kind keeps a deletion."""
    if status is None or followed.until == "deleted":
        return None
    waits = ((reason, Pending.said(reason)) for reason in status.waits_for)
    return next((said for said, wait in waits if wait and not wait.waiting_helps), None)


def _next(followed: Followed, stuck_by: str | None) -> str:
    if stuck_by is None:
        return "It goes on by itself"
    wait = Pending.said(stuck_by)
    if wait is not None and wait.code is PendingCode.HELD:
        return (
            "It goes on when somebody resumes it with durable send "
            f"{followed} resume --reason REASON"
        )
    return "Waiting does not help: somebody must change the workload, the fleet or the quota"


def _shortened(reason: str) -> str:
    if len(reason) <= REASON_CHARACTERS:
        return reason
    return f"{reason[: REASON_CHARACTERS - 3]}..."


def _has_come(status: WorkloadStatus, until: Until) -> bool:
    if until in ("complete", "deleted"):
        return status.phase in ("complete", "failed")
    return status.has_reached(until)
