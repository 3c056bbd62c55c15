"""What a workload remembers, and what follows from it."""

from dataclasses import dataclass, field
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import RegionId, TenantId, WorkloadName
    from durable.model.share import ShareReport
    from durable.model.workload import Condition, WorkloadKind, WorkloadSpec
    from durable.signals.status import WorkloadStatus
    from durable.workflows.inbox import MessageLog
    from durable.workflows.workload.progress import workload_status


@dataclass
class OpenPlacement:
    """A placement that was given a share; of an older generation, it is on its way out."""

    generation: int
    region: RegionId
    # The newest revision of the shares that it was given.
    revision: int = 0
    has_ended: bool = False

    @property
    def share(self) -> "ShareName":
        return (self.generation, self.region)


# Which share of a workload: its generation and region.
ShareName = tuple[int, RegionId]


@dataclass
class WorkloadState:
    """It goes along when the workflow continues as new."""

    generation: int = 0
    spec: WorkloadSpec | None = None
    share: dict[RegionId, tuple[int, ...]] = field(default_factory=dict[RegionId, tuple[int, ...]])
    revision: int = 0
    divided_revision: int = 0
    placements: list[OpenPlacement] = field(default_factory=list[OpenPlacement])
    # How far the shares of this generation have come, as the authority last said.
    reports: dict[RegionId, ShareReport] = field(default_factory=dict[RegionId, ShareReport])
    # Of a job: how many slots each region was told that it may run at once.
    parts: dict[RegionId, int] = field(default_factory=dict[RegionId, int])
    # Since when regions cannot use all of that, and those that gave it up, the longest ago first.
    stuck_since: dict[RegionId, datetime] = field(default_factory=dict[RegionId, datetime])
    gave_up_parts: list[RegionId] = field(default_factory=list[RegionId])
    # When this generation was admitted, and when it was recorded that it missed its deadline.
    admitted_at: datetime | None = None
    deadline_missed_at: datetime | None = None
    # Shares of which something may have changed since they were read.
    unread: list[ShareName] = field(default_factory=list[ShareName])
    # Regions that did not answer when all was recalled: they may hold what is not known here.
    unrecalled: list[RegionId] = field(default_factory=list[RegionId])
    # Regions that did not answer when they were last read.
    unreachable: list[RegionId] = field(default_factory=list[RegionId])
    deleting: str | None = None
    done: bool = False
    # Why a job was ended before its slots were.
    given_up: str | None = None
    # Whether the authority has recorded the end.
    is_finished: bool = False
    waits: list[str] = field(default_factory=list[str])
    tries: int = 0
    conditions: list[Condition] = field(default_factory=list[Condition])
    messages: MessageLog = field(default_factory=MessageLog)

    @property
    def is_divided(self) -> bool:
        """Whether every region owns the slots it must have, and no others."""
        return self.divided_revision == self.revision and not self.waits

    @property
    def current_placements(self) -> list[OpenPlacement]:
        """The placements of this generation."""
        return [one for one in self.placements if one.generation == self.generation]

    @property
    def current_reports(self) -> dict[RegionId, ShareReport]:
        """How far the shares of this generation have come."""
        reports = self.reports.items()
        return {region: one for region, one in reports if one.generation == self.generation}

    @property
    def due_at(self) -> datetime | None:
        """Until when a job is to be done."""
        job = None if self.spec is None else self.spec.job
        if job is None or job.deadline is None or self.admitted_at is None:
            return None
        return self.admitted_at + job.deadline

    @property
    def is_ending(self) -> bool:
        return self.deleting is not None or self.done

    @property
    def job_is_done(self) -> bool:
        """Whether every region that has part of a job has come to the end of it."""
        if self.spec is None or self.spec.kind is not WorkloadKind.JOB:
            return False
        ended = {one.region for one in self.current_placements if one.has_ended}
        return all(region in ended for region, slots in self.share.items() if slots)

    @property
    def to_release(self) -> list[OpenPlacement]:
        """The placements that must end and have not ended yet."""
        return [
            one
            for one in self.placements
            if not one.has_ended and (self.is_ending or one.generation != self.generation)
        ]

    @property
    def is_open(self) -> bool:
        """Whether every region was sent its present share."""
        current = self.current_placements
        sent = {one.region for one in current if one.revision == self.revision or one.has_ended}
        return self.is_ending or (
            all(region in sent for region in self.share)
            and all(one.region in sent for one in current)
        )

    def must_read(self, share: ShareName) -> None:
        """Has a share read again before the next step."""
        if share not in self.unread:
            self.unread.append(share)

    def learn(self, report: ShareReport) -> None:
        """Takes over what the authority says of a share; an older word changes nothing."""
        share = (report.generation, report.region)
        known = next((one for one in self.placements if one.share == share), None)
        if known is None and not report.has_ended and report.is_known:
            known = OpenPlacement(*share)
            self.placements.append(known)
        if known is not None:
            known.has_ended = report.has_ended
        if report.generation != self.generation:
            return
        before = self.reports.get(report.region)
        if before is None or (report.generation, report.version, report.at) >= (
            before.generation,
            before.version,
            before.at,
        ):
            self.reports[report.region] = report

    def status(self, tenant: TenantId, workload: WorkloadName, now: datetime) -> WorkloadStatus:
        """What the query answers."""
        assert self.spec is not None
        return workload_status(
            tenant=tenant,
            workload=workload,
            generation=self.generation,
            is_observed=self.is_open and self.divided_revision == self.revision,
            spec=self.spec,
            share=self.share,
            reports=self.reports,
            is_deleting=self.deleting is not None,
            is_done=self.done,
            waits=self.waits,
            conditions=self.conditions,
            messages=self.messages,
            now=now,
            due_at=self.due_at,
            deadline_missed_at=self.deadline_missed_at,
        )


@dataclass
class WorkloadStart:
    """What a workload is started with; `state` only when it continues as new."""

    tenant: TenantId
    workload: WorkloadName
    state: WorkloadState | None = None
    # Started without a request: it goes on with what the authority knows.
    recalls: bool = False
