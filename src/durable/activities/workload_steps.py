"""What a workload and its activities exchange: plain values with defaults for new fields."""

from collections.abc import Mapping

from pydantic import AwareDatetime, Field

from durable.activities.steps import PlacementKey
from durable.model.ids import ActorId, Generation, RegionId, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.readiness import Recoverable
from durable.model.work.rollout import RolloutProgress, RolloutState
from durable.model.work.share import ShareReport
from durable.model.work.workload import AdmittedWorkload, Condition
from durable.validation.value import Value


class WorkloadKey(Value):
    tenant: TenantId
    workload: WorkloadName


class WorkloadRequest(WorkloadKey):
    """A person's message about a workload, which the authority judges and counts."""

    message: OperatorMessage

    @property
    def actor(self) -> ActorId:
        return self.message.actor


class Admission(Value):
    """The answer to a request, and the workload as it is now if that differs."""

    answer: AdmittedWorkload
    now: AdmittedWorkload | None = None
    # Whether this request created the workload, and no region has ever owned a slot of it.
    is_new: bool = False

    @property
    def current(self) -> AdmittedWorkload:
        return self.now or self.answer


class ObserveStep(Value):
    """Shares of a workload to read again."""

    tenant: TenantId
    workload: WorkloadName
    placements: tuple[PlacementKey, ...]
    # A generation that is complete when, beside so many that serve elsewhere, all of these do.
    completes: Generation | None = None
    serving_elsewhere: int = 0
    wanted: int = 0


class ObservedShares(Value):
    """How far shares have come; those of a region that did not answer are missing."""

    reports: tuple[ShareReport, ...] = ()
    unreachable: tuple[RegionId, ...] = ()
    # Whether the generation that was asked about is complete.
    is_complete: bool = False
    # Of critical work: whether it would come back if a region were lost.
    recoverable: Recoverable | None = None


class DeadlineStep(ObserveStep):
    """A job that may have missed its deadline, and the shares that have to be done by then."""

    generation: Generation


class CheckedDeadline(ObservedShares):
    """The shares as they are, and since when it is recorded that they came too late."""

    missed_at: AwareDatetime | None = None


class DivideStep(WorkloadKey):
    """A step of a workload towards what the authority says is wanted of it, or towards its end."""

    # Of a new workload, of which nothing exists anywhere: the revision of its admission.
    first_revision: int | None = None
    # Why everything is to be stopped for good, and the generation that ends.
    ending: str | None = None
    generation: Generation = 1
    # Up to which number the placements of each region were told of their shares.
    opened: Mapping[RegionId, int] = Field(default={})
    # Of a job: how many slots each region may run at once; None leaves that as it is, and empty
    # does not limit it.
    parts: Mapping[RegionId, int] | None = None


class OpenedShare(Value):
    """A share that a placement looks after."""

    generation: Generation
    region: RegionId


class DivideResult(Value):
    """What was divided, what has to wait, and how far the shares had come just before."""

    # What is wanted by now.
    current: AdmittedWorkload
    # The last generation that was good.
    stable: Generation | None = None
    waits: tuple[str, ...] = ()
    # Regions that did not answer, each with the reason.
    unreachable: tuple[str, ...] = ()
    silent: tuple[RegionId, ...] = ()
    # Regions that did not take their share now; it is sent again.
    unopened: tuple[RegionId, ...] = ()
    # A newer division exists, so this one has changed nothing.
    is_overtaken: bool = False
    # The authority knows of no such end: this run remembers an earlier life of the workload.
    must_recall: bool = False
    open: tuple[OpenedShare, ...] = ()
    # Up to which number the placements of each region were told of their shares.
    opened: Mapping[RegionId, int] = Field(default={})
    # How many claims there were, in all regions that answered.
    claims: int = 0
    reports: tuple[ShareReport, ...] = ()
    rollout: RolloutState | None = None
    # Set while replicas are being replaced.
    progress: RolloutProgress | None = None
    look_again_seconds: float | None = None
    # Of critical work: whether it would come back if a region were lost.
    recoverable: Recoverable | None = None


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
