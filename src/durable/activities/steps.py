"""What workflows and activities tell each other: plain values with defaults for new fields."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Self

from pydantic import AwareDatetime, Field

from durable.model.ids import (
    ActorId,
    Generation,
    NodeId,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
)
from durable.model.intents import ReleaseCause
from durable.model.pending import Pending
from durable.model.refusal import Refusal
from durable.model.request import PlacementHold
from durable.model.slots import Crash, ObservedSlot, SlotOnNode
from durable.model.states import BindingState, RequestState
from durable.model.workload import Condition, WorkloadManifest, WorkloadSpec
from durable.signals.messages import Resize, Seen, ShareReport
from durable.signals.status import RejectedMessage
from durable.validation.value import Value


class Share(Value):
    """Which placement: one region's share of one workload generation."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation

    def __str__(self) -> str:
        return f"{self.tenant}/{self.workload} g{self.generation} in {self.region}"


class Claim(Value):
    """A token that one attempt at one slot was given, and where."""

    slot: Slot
    attempt: Annotated[int, Field(ge=1)]
    token: Token
    node: NodeId
    expires_at: AwareDatetime | None = None
    # A step that was refused is asked again under the next ordinal.
    ordinal: Annotated[int, Field(ge=1)] = 1

    @classmethod
    def of(cls, slot: ObservedSlot) -> Self:
        return cls(
            slot=slot.slot,
            attempt=slot.attempt,
            token=slot.token,
            node=slot.node,
            expires_at=slot.expires_at,
        )


class Progress(Value):
    """The placement's row in the region's queue."""

    share: Share
    spec: WorkloadSpec
    slots: tuple[Slot, ...]
    waiting: int
    state: RequestState
    pending: Pending | None
    hold: PlacementHold | None = None
    attempts: int
    enqueued_at: AwareDatetime
    placed_by: AwareDatetime
    next_retry_at: AwareDatetime | None = None
    completed: int = 0


class GoOn(Value):
    """How to bind and start what was reserved in the same step, if all of it found a place."""

    # The queue's row, as it is then; agents read there what to run.
    progress: Progress
    # Bindings in these states are still coming up.
    passing: tuple[BindingState, ...]

    def row_after(self, placed: "Placed") -> Progress:
        """The row as it is written, and remembered as written, once it is known what came of it."""
        return self.progress.model_copy(update={"attempts": placed.next_attempt - 1})


class PlaceStep(Value):
    share: Share
    spec: WorkloadSpec
    slots: tuple[Slot, ...]
    first_attempt: Annotated[int, Field(ge=1)]
    # How many decisions in a row left something waiting; the longer the wait, the longer the next.
    tries: Annotated[int, Field(ge=0)] = 0
    standing: tuple[SlotOnNode, ...] = ()
    crashes: tuple[Crash, ...] = ()
    go_on: GoOn | None = None


class Placed(Value):
    """What a decision came to: claims that are leased, and the one reason for the rest."""

    claims: tuple[Claim, ...]
    next_attempt: Annotated[int, Field(ge=1)]
    pending: Pending | None
    retry_after_seconds: float
    # Slots that somebody of this workload holds already: read the authority before trying again.
    taken: tuple[Slot, ...] = ()
    # An attempt of an earlier run was met: what came of it is the authority's to tell.
    replayed: bool = False
    # What came of going on, if the step went on.
    started: "Started | None" = None

    @property
    def is_whole(self) -> bool:
        """Whether every slot found its place now, and nothing is left to find out."""
        return bool(self.claims) and self.pending is None and not (self.taken or self.replayed)


class ClaimsStep(Value):
    """One step for claims of a placement."""

    share: Share
    claims: tuple[Claim, ...]
    why: str
    # For those slots that have a reason of their own.
    reasons: Mapping[Slot, str] = Field(default={})
    cause: ReleaseCause = ReleaseCause.WITHDRAWN

    def why_of(self, claim: Claim) -> str:
        return self.reasons.get(claim.slot, self.why)


class StartStep(ClaimsStep):
    """What to bind and start, and the queue's row if it has to be written first.

    Agents read there what to run.
    """

    # Those that are reserved and not bound yet.
    to_bind: tuple[Slot, ...] = ()
    progress: Progress | None = None
    # Bindings in these states are still coming up.
    passing: tuple[BindingState, ...] = ()


class StepRefusal(Value):
    slot: Slot
    refusal: Refusal


class Stepped(Value):
    """The slots for which the step was taken, and those for which it was refused."""

    taken: tuple[Slot, ...]
    # The region's version at which all of it had happened.
    version: int = 0
    refused: tuple[StepRefusal, ...] = ()


class Started(Stepped):
    """Also what was bound, and what was seen of it when it came up at once."""

    bound: tuple[Slot, ...] = ()
    seen: Seen | None = None


class Rejected(Value):
    """Messages that changed nothing, for the audit."""

    target: str
    messages: tuple[RejectedMessage, ...]
    # Names this report, so that it is written once however often it is sent.
    key: str


# ── the workload's side ─────────────────────────────────────────────────────────────────────────


class Divided(Value):
    """What has to wait for an old claim to end, or why the slots could not be settled at all."""

    waits: tuple[str, ...] = ()
    unreachable: str | None = None
    # Whose placement has come to its end, and is not started again.
    ended: tuple[RegionId, ...] = ()


class FirstDivision(Value):
    """How to give a workload that is new to its regions in the step that admits it."""

    revision: int
    transfer: str
    task_timeout: timedelta


class AdmitStep(Value):
    """A manifest to take in, or the present one with another number of replicas."""

    manifest: WorkloadManifest
    request: str
    actor: ActorId
    replicas: int | None = None
    first: FirstDivision | None = None


class Admitted(Value):
    """The workload as it now stands; not what this request asked, if that was long ago."""

    # Whether there was such a workload before this came.
    existed: bool = False

    generation: Generation
    spec: WorkloadSpec
    share: Mapping[RegionId, tuple[Slot, ...]]
    answered_generation: Generation
    deleting: bool = False
    deleted: bool = False
    # What came of giving it to its regions, if the step went on to that.
    divided: Divided | None = None


class Opening(Value):
    """What a region's placement is told; one that does not run yet is started."""

    share: Share
    wanted: Resize
    # Nobody has started it yet, so that it need not be told beside being started.
    is_first: bool = False


class DivideStep(Value):
    tenant: TenantId
    workload: WorkloadName
    # None when every region has its slots already.
    share: Mapping[RegionId, tuple[Slot, ...]] | None
    transfer: str
    openings: tuple[Opening, ...]
    task_timeout: timedelta


class ReleasePlacement(Value):
    """A placement to end; one that was terminated is started again, to release what it left."""

    share: Share
    wanted: Resize
    reason: str
    request: str
    task_timeout: timedelta


class WorkloadKey(Value):
    tenant: TenantId
    workload: WorkloadName


class Recalled(Value):
    """What the authority knows of a workload, for a workflow that has no memory of it."""

    generation: Generation
    spec: WorkloadSpec
    share: Mapping[RegionId, tuple[Slot, ...]]
    deleting: bool
    deleted: bool
    # One for each generation and region that asks for something or holds something.
    reports: tuple[ShareReport, ...] = ()


class DeleteStep(Value):
    tenant: TenantId
    workload: WorkloadName
    request: str
    actor: ActorId
    reason: str


class Finish(Value):
    """The end of a workload: deleted, or a job that is done."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    deleted: bool
    conditions: tuple[Condition, ...] = ()
    replicas_by_state: Mapping[str, int] = Field(default={})
