"""The messages that people and controllers send to workflows; each is one frozen value.

People's messages say who asks and why. `request_id` makes a message that was sent twice count once;
each kind is counted for itself, so that a hold and its resume may share one.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AwareDatetime, Field

from durable.model.ids import ActorId, Generation, RegionId, Slot
from durable.model.pending import Pending
from durable.model.slots import ObservedSlot
from durable.model.states import BindingState, RequestState
from durable.model.workload import MAX_REPLICAS, WorkloadManifest, WorkloadSpec
from durable.validation.text import PlainText
from durable.validation.value import Value

RequestId = Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Za-z0-9._:@/-]+$")]


class Message(Value):
    """Anything that can be sent; the example is what the Temporal UI shows next to it."""

    example: ClassVar[dict[str, Any]] = {}


class Asked(Message):
    """A person's or a service's wish."""

    actor: ActorId
    reason: PlainText
    request_id: RequestId


_WHO: dict[str, Any] = {
    "actor": "alice@example.com",
    "reason": "INC-42",
    "request_id": "INC-42-1",
}


class Hold(Asked):
    """Nothing new is placed until somebody resumes; what runs stays."""

    example: ClassVar[dict[str, Any]] = _WHO


class Resume(Asked):
    example: ClassVar[dict[str, Any]] = _WHO


class RetryNow(Asked):
    """Look for a place at once instead of at the end of the backoff."""

    example: ClassVar[dict[str, Any]] = _WHO


class Evict(Asked):
    """Stop these slots (none named: all of them) and place them again."""

    slots: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)] = ()
    example: ClassVar[dict[str, Any]] = {**_WHO, "slots": [0]}


class Release(Asked):
    """Stop every slot for good; the placement ends when nothing of it is left."""


class Apply(Asked):
    """The desired state of a workload."""

    manifest: WorkloadManifest


class Scale(Asked):
    """Another number of replicas; everything else stays."""

    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
    example: ClassVar[dict[str, Any]] = {**_WHO, "replicas": 6}


class Delete(Asked):
    """Stop and release everything, then end."""

    example: ClassVar[dict[str, Any]] = _WHO


# ── from controllers ────────────────────────────────────────────────────────────────────────────


class Resize(Message):
    """The share of the region as the workload wants it, and what is to run there."""

    slots: Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)]
    spec: WorkloadSpec
    # Counts the shares that a workload gave out; one that comes late is not taken.
    revision: Annotated[int, Field(ge=1)]


class Seen(Message):
    """Everything of a placement that the authority knows, at one version of the region."""

    version: Annotated[int, Field(ge=0)]
    at: AwareDatetime
    slots: Annotated[tuple[ObservedSlot, ...], Field(max_length=MAX_REPLICAS)]


class Wake(Message):
    """Room may have appeared."""

    why: str = "room appeared"


class ShareReport(Message):
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


class Ended(Message):
    """A placement has nothing left: every slot was released, or its job is done."""

    region: RegionId
    generation: Generation
    completed: Annotated[int, Field(ge=0)] = 0
    given_up: Annotated[int, Field(ge=0)] = 0
