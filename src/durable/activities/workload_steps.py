"""What a workload and its activities exchange: plain values with defaults for new fields."""

from collections.abc import Mapping

from pydantic import AwareDatetime, Field

from durable.activities.steps import PlacementKey
from durable.model.ids import ActorId, Generation, RegionId, Slot, TenantId, WorkloadName
from durable.model.share import DesiredShare, ShareReport
from durable.model.workload import Condition, WorkloadManifest, WorkloadSpec
from durable.validation.value import Value

Shares = Mapping[RegionId, tuple[Slot, ...]]


class WorkloadKey(Value):
    tenant: TenantId
    workload: WorkloadName


class AdmitStep(WorkloadKey):
    """A manifest to admit or, without one, the present one with another replica count."""

    manifest: WorkloadManifest | None
    replicas: int | None = None
    request: str
    actor: ActorId
    reason: str = ""


class Admitted(Value):
    """What a request was answered when it first came: generation, spec and the regions' shares.

    The authority's own row also has status and times, which no workflow should remember.
    """

    generation: Generation
    spec: WorkloadSpec
    share: Shares
    # When this generation was admitted, and when it was recorded that it missed its deadline.
    admitted_at: AwareDatetime | None = None
    deadline_missed_at: AwareDatetime | None = None


class Admission(Value):
    """The answer to a request, and the workload as it is now if that differs."""

    answer: Admitted
    now: Admitted | None = None
    # Whether there was such a workload before this request.
    existed: bool = False
    deleting: bool = False
    deleted: bool = False

    @property
    def current(self) -> Admitted:
        return self.now or self.answer


class Recalled(Value):
    """What the authority knows of a workload, for a workflow that has no memory of it."""

    generation: Generation
    spec: WorkloadSpec
    share: Shares
    deleting: bool
    deleted: bool
    # One for each generation and region that is wanted, requests or holds something.
    reports: tuple[ShareReport, ...] = ()
    # Regions that did not answer: what they hold has to be read again.
    unreachable: tuple[RegionId, ...] = ()
    admitted_at: AwareDatetime | None = None
    deadline_missed_at: AwareDatetime | None = None
    # Whether it is a job that ended by itself.
    finished: bool = False

    def is_finished_job(self, generation: Generation) -> bool:
        return self.finished and self.generation == generation


class ObserveStep(Value):
    """Shares of a workload to read again."""

    tenant: TenantId
    workload: WorkloadName
    placements: tuple[PlacementKey, ...]


class ObservedShares(Value):
    """How far shares have come; those of a region that did not answer are missing."""

    reports: tuple[ShareReport, ...] = ()
    unreachable: tuple[RegionId, ...] = ()


class DeadlineStep(ObserveStep):
    """A job that may have missed its deadline, and the shares that have to be done by then."""

    generation: Generation


class CheckedDeadline(ObservedShares):
    """The shares as they are, and since when it is recorded that they came too late."""

    missed_at: AwareDatetime | None = None


class Opening(Value):
    """What a region's placement is to run; one that does not run yet is started."""

    key: PlacementKey
    share: DesiredShare
    # Nobody has started it yet: it needs no message.
    is_first: bool = False


class DivideStep(Value):
    """Which slots each region owns, and which placements have another share."""

    tenant: TenantId
    workload: WorkloadName
    # None when every region owns its slots already.
    share: Shares | None
    transfer: str
    # Of the shares: the authority refuses one that is older than the last it saw.
    revision: int
    generation: Generation
    openings: tuple[Opening, ...]


class Divided(Value):
    """What has to wait for an old claim to end, or why the slots could not be divided at all."""

    waits: tuple[str, ...] = ()
    unreachable: str | None = None
    # Of a newer division, which this workflow has no memory of.
    newer_revision: int | None = None
    # Regions that did not take their share now; it is sent again.
    unopened: tuple[RegionId, ...] = ()


class DeleteStep(WorkloadKey):
    request: str
    actor: ActorId
    reason: str


class Deletion(Value):
    """What a request to delete was answered, and whether the workload is being deleted now.

    It is not if that request was answered in an earlier life of the workload.
    """

    answer: str
    deleting: bool


class FinishStep(Value):
    """The end of a workload: deleted, or a job that is done."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    deleted: bool
    conditions: tuple[Condition, ...] = ()
    replicas_by_state: Mapping[str, int] = Field(default={})
