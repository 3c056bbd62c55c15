"""The payloads of messages; each is one frozen value. `registry` says who sends which to whom.

What a person or a service sends carries who asks, why, and a request id, which makes a message that
was sent twice count once. Each kind of message is counted by itself, so that a hold and its resume
may share an id.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.claims import ObservedSlot
from durable.model.ids import ActorId, Generation, RegionId, Slot
from durable.model.pending import Pending
from durable.model.states import BindingState, RequestState
from durable.model.workload import MAX_REPLICAS, WorkloadManifest, WorkloadSpec
from durable.validation.text import PlainText
from durable.validation.value import Value

RequestId = Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Za-z0-9._:@/-]+$")]
Slots = Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)]


class Payload(Value):
    """What a message carries."""


class OperatorRequest(Payload):
    """What a person or a service asks for."""

    actor: ActorId
    reason: PlainText
    request_id: RequestId


class HoldPlacement(OperatorRequest):
    """Place nothing new until somebody resumes; what runs stays."""


class ResumePlacement(OperatorRequest):
    """Place again after a hold."""


class RetryPlacement(OperatorRequest):
    """Try to place what waits now instead of at the end of the backoff."""


class EvictSlots(OperatorRequest):
    """Stop these slots (all of them if none is named) and place them again."""

    slots: Slots = ()


class ApplyWorkload(OperatorRequest):
    """Set the desired state of a workload."""

    manifest: WorkloadManifest


class ScaleWorkload(OperatorRequest):
    """Change the replica count."""

    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)]


class DeleteWorkload(OperatorRequest):
    """Stop and release everything, then end."""


# ── from controllers ────────────────────────────────────────────────────────────────────────────


class SetShare(Payload):
    """The slots that a region runs of its workload, and what they run."""

    slots: Slots
    spec: WorkloadSpec
    # Counts the shares that a workload has given out; a placement ignores one that comes late.
    revision: Annotated[int, Field(ge=1)]


class ReleasePlacement(Payload):
    """Stop every slot for good; the placement ends when nothing of it is left."""

    actor: ActorId
    reason: PlainText
    request_id: RequestId


class SlotsObserved(Payload):
    """Every live slot of a placement, at one version of the region."""

    version: Annotated[int, Field(ge=0)]
    at: AwareDatetime
    slots: Annotated[tuple[ObservedSlot, ...], Field(max_length=MAX_REPLICAS)]


class Wake(Payload):
    """What the placement waits for may have appeared."""

    why: str = "capacity was freed"


class ShareReport(Payload):
    """How far one region's share of a workload has come."""

    region: RegionId
    generation: Generation
    version: Annotated[int, Field(ge=0)]
    at: AwareDatetime
    by_state: Mapping[BindingState, int]
    completed: Annotated[int, Field(ge=0)] = 0
    waiting: Annotated[int, Field(ge=0)] = 0
    request: RequestState | None = None
    pending: Pending | None = None


class PlacementEnded(Payload):
    """A placement has nothing left: every slot was released, or its job is done."""

    region: RegionId
    generation: Generation
    completed: Annotated[int, Field(ge=0)] = 0
    given_up: Annotated[int, Field(ge=0)] = 0
