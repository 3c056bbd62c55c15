"""What a workload remembers, and the status that follows from it."""

from dataclasses import dataclass, field
from datetime import datetime

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import RegionId, TenantId, WorkloadName
    from durable.model.workload import Condition, WorkloadKind, WorkloadSpec
    from durable.signals.messages import Ended, ShareReport
    from durable.signals.status import WorkloadStatus
    from durable.workflows.inbox import MessageRecord
    from durable.workflows.workload.progress import progress_of


@dataclass
class OpenPlacement:
    """A placement that was told a share; of an older generation, it is on its way out."""

    generation: int
    region: RegionId
    revision: int = 0
    asked_to_end: int = 0
    ended: Ended | None = None


@dataclass
class WorkloadState:
    """What a workload remembers; it goes along when the workflow continues as new."""

    generation: int = 0
    spec: WorkloadSpec | None = None
    share: dict[RegionId, tuple[int, ...]] = field(default_factory=dict[RegionId, tuple[int, ...]])
    revision: int = 0
    settled_revision: int = 0
    placements: list[OpenPlacement] = field(default_factory=list[OpenPlacement])
    reports: dict[RegionId, ShareReport] = field(default_factory=dict[RegionId, ShareReport])
    deleting: str | None = None
    done: bool = False
    waits: list[str] = field(default_factory=list[str])
    tries: int = 0
    conditions: list[Condition] = field(default_factory=list[Condition])
    messages: MessageRecord = field(default_factory=MessageRecord)

    @property
    def is_settled(self) -> bool:
        """Whether every region owns the slots it shall have, and no others."""
        return self.settled_revision == self.revision and not self.waits

    @property
    def present(self) -> list[OpenPlacement]:
        """The placements of this generation."""
        return [one for one in self.placements if one.generation == self.generation]

    @property
    def job_is_done(self) -> bool:
        """Whether every region that has part of a job has come to the end of it."""
        if self.spec is None or self.spec.kind is not WorkloadKind.JOB:
            return False
        ended = {one.region for one in self.present if one.ended is not None}
        return all(region in ended for region, slots in self.share.items() if slots)

    @property
    def to_release(self) -> list[OpenPlacement]:
        """The placements that shall end and have not ended yet."""
        ends_all = self.deleting is not None or self.done
        return [
            one
            for one in self.placements
            if one.ended is None and (ends_all or one.generation != self.generation)
        ]

    @property
    def is_open(self) -> bool:
        """Whether every region was told its present share."""
        told = {one.region for one in self.present if one.revision == self.revision or one.ended}
        ending = self.deleting is not None or self.done
        return ending or (
            all(region in told for region in self.share)
            and all(one.region in told for one in self.present)
        )

    def status(self, tenant: TenantId, workload: WorkloadName, now: datetime) -> WorkloadStatus:
        """What the query answers."""
        assert self.spec is not None
        return progress_of(
            tenant=tenant,
            workload=workload,
            generation=self.generation,
            is_observed=self.is_open and self.settled_revision == self.revision,
            spec=self.spec,
            share=self.share,
            reports=self.reports,
            ended={one.region: one.ended for one in self.present if one.ended is not None},
            deleting=self.deleting is not None,
            done=self.done,
            waits=self.waits,
            conditions=self.conditions,
            record=self.messages,
            now=now,
        )


@dataclass
class WorkloadStart:
    """What a workload is started with; `state` only when it continues."""

    tenant: TenantId
    workload: WorkloadName
    state: WorkloadState | None = None
