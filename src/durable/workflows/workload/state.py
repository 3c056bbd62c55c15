"""What a workload remembers, and what follows from it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from durable.activities.steps import OpenedShare
    from durable.model.ids import RegionId, TenantId, WorkloadName
    from durable.model.recovery.readiness import Recoverable
    from durable.model.work.rollout import RolloutProgress, RolloutState
    from durable.model.work.share import ShareReport
    from durable.model.work.workload import Condition, WorkloadKind, WorkloadSpec
    from durable.signals.names import workload_id
    from durable.signals.status import WorkloadStatus
    from durable.validation.value import Value
    from durable.workflows.continued import continued
    from durable.workflows.inbox import MessageLog
    from durable.workflows.starts import read_start
    from durable.workflows.workload.progress import workload_status


EXAMPLE = '{"tenant": "risk", "workload": "api"}'
# Of a workflow that was started with something else than a name, and fails at once.
NO_NAME = (TenantId("none"), WorkloadName("none"))
# A report covers hints that are up to this much older.
HINT_KEPT = timedelta(minutes=1)
# Which share of a workload: its generation and region.
ShareName = tuple[int, RegionId]


@dataclass
class WorkloadState:
    """It goes along when the workflow continues as new."""

    generation: int = 0
    spec: WorkloadSpec | None = None
    share: dict[RegionId, tuple[int, ...]] = field(default_factory=dict[RegionId, tuple[int, ...]])
    # The last generation of which every replica served at once.
    stable: int | None = None
    # Of its admission, while nothing of it exists anywhere.
    first_revision: int | None = None
    # Whether the slots have to be divided again, and the generation that was divided last.
    must_divide: bool = False
    divided_generation: int = 0
    # When to look by itself at what nothing reports.
    look_at: datetime | None = None
    # The shares that placements look after, and how many claims there were.
    open: list[OpenedShare] = field(default_factory=list[OpenedShare])
    claims: int = 0
    # Up to which number the placements of each region know of their shares.
    opened: dict[RegionId, int] = field(default_factory=dict[RegionId, int])
    # How far the shares have come, as the authority last said.
    reports: list[ShareReport] = field(default_factory=list[ShareReport])
    rollout: RolloutState | None = None
    progress: RolloutProgress | None = None
    # Of a job: how many slots each region may run at once, as it last got it.
    parts: dict[RegionId, int] = field(default_factory=dict[RegionId, int])
    # Since when regions cannot use all of that, and those that gave it up, the longest ago first.
    stuck_since: dict[RegionId, datetime] = field(default_factory=dict[RegionId, datetime])
    gave_up_parts: list[RegionId] = field(default_factory=list[RegionId])
    # When this generation was admitted, and when it was recorded that it missed its deadline.
    admitted_at: datetime | None = None
    deadline_missed_at: datetime | None = None
    # Shares of which something may have changed since they were read.
    unread: list[ShareName] = field(default_factory=list[ShareName])
    # Regions that did not answer when they were last read.
    unreachable: list[RegionId] = field(default_factory=list[RegionId])
    deleting: str | None = None
    done: bool = False
    # Why a job was ended before its slots were.
    given_up: str | None = None
    # Whether the authority has recorded the end.
    is_finished: bool = False
    # Of critical work: whether it would come back if a region were lost.
    recoverable: Recoverable | None = None
    waits: list[str] = field(default_factory=list[str])
    tries: int = 0
    conditions: list[Condition] = field(default_factory=list[Condition])
    messages: MessageLog = field(default_factory=MessageLog)

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
    def is_changing(self) -> bool:
        """Whether what happens in a region may call for another division."""
        others = any(one.generation != self.generation for one in self.open)
        return self.is_ending or self.progress is not None or others

    @property
    def is_released(self) -> bool:
        """Whether nothing of it is left anywhere."""
        return not self.must_divide and not self.open and not self.claims

    @property
    def job_is_done(self) -> bool:
        """Whether every region that has part of a job has come to the end of that part."""
        if self.spec is None or self.spec.kind is not WorkloadKind.JOB:
            return False
        reports = self.current_reports
        return all(
            region in reports and reports[region].covers(slots)
            for region, slots in self.share.items()
            if slots
        )

    @property
    def current_reports(self) -> dict[RegionId, ShareReport]:
        """How far the shares of this generation have come."""
        return {one.region: one for one in self.reports if one.generation == self.generation}

    @property
    def knows_regions(self) -> bool:
        """Whether it is known what regions hold of this generation, if anything."""
        return self.first_revision is not None or self.divided_generation == self.generation

    @property
    def completes(self) -> int | None:
        """The generation that is good as soon as all of it serves; no rollout says so of it."""
        is_service = self.spec is not None and self.spec.kind is WorkloadKind.SERVICE
        is_settled = self.generation == self.divided_generation and not self.is_changing
        is_new = self.stable != self.generation
        return self.generation if is_service and is_settled and is_new else None

    def has_seen(self, share: ShareName, until: datetime | None) -> bool:
        """Whether a share was read after this moment, by the clock of its region.

        Not long after it: a clock that was set back by more than that does not silence a region.
        """
        if until is None:
            return False
        known = [one.at for one in self.reports if (one.generation, one.region) == share]
        return any(until <= at < until + HINT_KEPT for at in known)

    def must_read(self, share: ShareName) -> None:
        """Has a share read again before the next step."""
        if share not in self.unread:
            self.unread.append(share)

    def learn(self, report: ShareReport) -> None:
        """Takes over what the authority says of a share; an older word changes nothing."""
        share = (report.generation, report.region)
        before = next((one for one in self.reports if (one.generation, one.region) == share), None)
        if before is not None and (report.version, report.at) < (before.version, before.at):
            return
        has_ended = report.generation != self.generation and (
            report.has_ended or not report.is_known
        )
        self.reports = [one for one in self.reports if one is not before]
        if not has_ended:
            self.reports.append(report)

    def status(self, tenant: TenantId, workload: WorkloadName, now: datetime) -> WorkloadStatus:
        """What the query answers."""
        assert self.spec is not None
        return workload_status(
            tenant=tenant,
            workload=workload,
            generation=self.generation,
            observed_generation=self.divided_generation,
            spec=self.spec,
            share=self.share,
            reports=self.reports,
            stable=self.stable,
            rollout=self.rollout,
            progress=self.progress,
            is_deleting=self.deleting is not None,
            is_done=self.done or self.job_is_done,
            waits=self.waits,
            conditions=self.conditions,
            messages=self.messages,
            now=now,
            due_at=self.due_at,
            deadline_missed_at=self.deadline_missed_at,
            recoverable=self.recoverable,
        )


@dataclass
class WorkloadStart:
    """What a workload is started with; `state` only when it continues as new."""

    tenant: TenantId
    workload: WorkloadName
    state: WorkloadState | None = None
    # Started without a request: it goes on with what the authority knows.
    recalls: bool = False


class StartWorkload(Value):
    """What a person starts a workload with; a state that comes along is not believed."""

    tenant: TenantId
    workload: WorkloadName
    recalls: bool = False


def start_of(raw: RawValue | None) -> WorkloadStart:
    """What the run before this one left, or what a person starts it with; refused if wrong."""
    left = continued(raw)
    if left is not None:
        return workflow.payload_converter().from_payload(left.payload, WorkloadStart)
    given = read_start(raw, StartWorkload, lambda it: workload_id(it.tenant, it.workload), EXAMPLE)
    return WorkloadStart(given.tenant, given.workload, recalls=given.recalls)
