"""What workloads and placements exchange with their activities: plain values with defaults."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field

from durable.model.ids import (
    ActorId,
    Generation,
    IncidentId,
    NodeId,
    PolicyRevision,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
)
from durable.model.operators.rights import OperatorMessage
from durable.model.placement.claims import Crash, ObservedSlot, SlotOnNode
from durable.model.placement.intents import ReleaseCause
from durable.model.placement.pending import Pending
from durable.model.placement.request import SchedulingRequest
from durable.model.recovery.readiness import Recoverable
from durable.model.refusal import Refusal
from durable.model.states import BindingState
from durable.model.work.rollout import RolloutProgress, RolloutState
from durable.model.work.share import ShareReport, SlotsObserved
from durable.model.work.workload import AdmittedWorkload, Condition, WorkloadSpec
from durable.validation.text import Sentence
from durable.validation.value import Value

ACTOR = ActorId("controller:placement")


class PlacementKey(Value):
    """Which placement: one region's share of one workload generation."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation

    def __str__(self) -> str:
        return f"{self.tenant}/{self.workload} g{self.generation} in {self.region}"

    def intent(self, slot: Slot, attempt: int, epoch: int) -> dict[str, Any]:
        """What every intent of this placement says: which slot, which attempt, who asks."""
        return {
            **self.model_dump(),
            "slot": slot,
            "attempt": attempt,
            "epoch": epoch,
            "actor": ACTOR,
        }


class Claim(Value):
    """A claim as a workflow refers to it; its amounts and its state are the authority's to know."""

    slot: Slot
    attempt: Annotated[int, Field(ge=1)]
    token: Token
    node: NodeId
    # The region's version at which the last step was taken.
    version: Annotated[int, Field(ge=0)] = 0
    expires_at: AwareDatetime | None = None
    # A step that was refused is sent again under the next ordinal.
    ordinal: Annotated[int, Field(ge=1)] = 1

    @classmethod
    def of(cls, slot: ObservedSlot) -> Self:
        return cls(
            slot=slot.slot,
            attempt=slot.attempt,
            token=slot.token,
            node=slot.node,
            expires_at=slot.expires_at,
            ordinal=slot.ordinal,
        )

    def intent(self, key: PlacementKey, epoch: int, evidence: str) -> dict[str, Any]:
        """The same for a step of this claim."""
        common = key.intent(self.slot, self.attempt, epoch)
        return {**common, "token": self.token, "ordinal": self.ordinal, "evidence": evidence}


class RecallStep(Value):
    """What a placement knows already: what is older than that is not read again."""

    key: PlacementKey
    known_revision: Annotated[int, Field(ge=0)]
    # Whether this run has not read yet what the runs before it left.
    with_past: bool
    # With which slot to begin: the answer for thousands of slots is read in pages.
    first_slot: Slot = 0


class ReserveStep(Value):
    """Slots to decide on and reserve."""

    key: PlacementKey
    spec: WorkloadSpec
    slots: tuple[Slot, ...]
    first_attempt: Annotated[int, Field(ge=1)]
    # How many decisions in a row left something waiting; each one lengthens the backoff.
    tries: Annotated[int, Field(ge=0)] = 0
    live: tuple[SlotOnNode, ...] = ()
    crashes: tuple[Crash, ...] = ()
    # By how much its deadline has raised its priority.
    urgency: Annotated[int, Field(ge=0)] = 0
    # The recovery on whose budgets it may draw.
    incident: IncidentId | None = None


class UrgencyStep(Value):
    """A job whose priority rises as its deadline nears."""

    key: PlacementKey
    priority: Annotated[int, Field(ge=0)]
    admitted_at: AwareDatetime
    due_at: AwareDatetime


class CurrentUrgency(Value):
    """By how much its priority is raised now, and for how long that stays so; None: for good."""

    raised_by: Annotated[int, Field(ge=0)]
    seconds: float | None = None


class ReserveResult(Value):
    """The claims that a decision led to, and the one reason why the other slots wait."""

    claims: tuple[Claim, ...]
    next_attempt: Annotated[int, Field(ge=1)]
    pending: Pending | None
    retry_after_seconds: float
    # Slots that already have a claim of this workload: read the authority before trying again.
    taken: tuple[Slot, ...] = ()
    # An attempt of an earlier run was found: read the authority for what came of it.
    replayed: bool = False
    # The region's version on which was decided last: what gets better later may help.
    decided_version: Annotated[int, Field(ge=0)] = 0
    policy_revision: PolicyRevision | None = None


class ClaimsStep(Value):
    """One step for claims of a placement: bind, stop, release or expire."""

    key: PlacementKey
    claims: tuple[Claim, ...]
    why: str
    # For those slots that have a reason of their own.
    reasons: Mapping[Slot, str] = Field(default={})
    cause: ReleaseCause = ReleaseCause.WITHDRAWN
    # Slots that are to be stopped although too few others serve.
    forced: tuple[Slot, ...] = ()
    # Bindings in these states are still on their way; none: do not wait for what comes of them.
    passing: tuple[BindingState, ...] = ()
    # Whether it has time while the region is fenced: its recovery moves what can be moved.
    unless_fenced: bool = False

    def why_of(self, claim: Claim) -> str:
        return self.reasons.get(claim.slot, self.why)


class StartStep(ClaimsStep):
    """What to start, and the placement's request if agents cannot read there yet what to run."""

    request: SchedulingRequest | None = None


class StepRefusal(Value):
    slot: Slot
    refusal: Refusal


class StepResult(Value):
    """The claims for which the step was taken, with node, token and version, and the refusals."""

    done: tuple[Claim, ...] = ()
    refused: tuple[StepRefusal, ...] = ()
    # What came of it at once, if that was waited for.
    observed: SlotsObserved | None = None


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


class ObserveStep(WorkloadKey):
    """Shares of a workload to read again."""

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
    # Of a job: since when it is recorded that it missed its deadline.
    missed_at: AwareDatetime | None = None
    # Of critical work: whether it would come back if a region were lost.
    recoverable: Recoverable | None = None


class DeadlineStep(ObserveStep):
    """A job that may have missed its deadline, and the shares that have to be done by then."""

    generation: Generation


class DivideStep(WorkloadKey):
    """A step of a workload towards what the authority says is wanted of it, or towards its end."""

    # Of a new workload, of which nothing exists anywhere: the revision of its admission.
    first_revision: int | None = None
    # Why everything is to be stopped for good, and the generation that ends.
    ending: str | None = None
    generation: Generation = 1
    # Up to which number the placements of each region know of their shares.
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
    unreachable: Mapping[RegionId, Sentence] = Field(default={})
    # Regions that did not take their share now; it is sent again.
    unopened: tuple[RegionId, ...] = ()
    # A newer division exists, so this one has changed nothing.
    is_overtaken: bool = False
    # The authority knows of no such end: this run remembers an earlier life of the workload.
    must_recall: bool = False
    open: tuple[OpenedShare, ...] = ()
    # Up to which number the placements of each region know of their shares.
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


class FinishStep(WorkloadKey):
    """The end of a workload: deleted, or a job that is done."""

    generation: Generation
    deleted: bool
    conditions: tuple[Condition, ...] = ()
    replicas_by_state: Mapping[str, int] = Field(default={})
