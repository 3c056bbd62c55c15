"""The payloads of messages; each is one frozen value. `registry` says who sends which to whom.

What a person or a service sends carries who asks, why, and a request id, which makes a message that
was sent twice count once. What a controller sends is a hint to look at the authority and carries no
facts: a forged one changes nothing.
"""

from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import ActorId, Generation, RegionId, Slot
from durable.model.operators.rights import Signature
from durable.model.work.workload import MAX_REPLICAS, WorkloadManifest
from durable.validation.text import PlainText
from durable.validation.value import Value

RequestId = Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Za-z0-9._:@/-]+$")]
Slots = Annotated[tuple[Slot, ...], Field(max_length=MAX_REPLICAS)]


def controllers_request(what: str, *which: object) -> str:
    """The id of what a controller asks for by itself.

    It has spaces, which no RequestId has: else a person could use it first, and the controller's
    own request would be refused for ever.
    """
    return " ".join(("controller", what, *map(str, which)))


class Payload(Value):
    """What a message carries."""


class OperatorRequest(Payload):
    """What a person or a service asks for; a field with a description is an option of a command."""

    actor: ActorId
    reason: PlainText
    request_id: RequestId
    # When it was signed, and the signature by the actor's key; `durable sign` makes both.
    signed_at: AwareDatetime | None = None
    signature: Signature | None = None


class RetryPlacement(OperatorRequest):
    """Try to place what waits now instead of at the end of the backoff."""


class EvictSlots(OperatorRequest):
    """Stop these slots (all of them if none is named) and place them again.

    What serves is stopped only within the disruption allowance, unless it is forced.
    """

    slots: Annotated[Slots, Field(description="A slot to stop; repeatable, by default all.")] = ()
    force: Annotated[bool, Field(description="Stop more than the allowance lets.")] = False


class ApplyWorkload(OperatorRequest):
    """Set the desired state of a workload."""

    manifest: WorkloadManifest


class ScaleWorkload(OperatorRequest):
    """Change the replica count."""

    replicas: Annotated[int, Field(ge=0, le=MAX_REPLICAS, description="The new count.")]


class DeleteWorkload(OperatorRequest):
    """Stop and release everything, then end."""


class PauseRollout(OperatorRequest):
    """Replace nothing more until it is resumed."""


class ResumeRollout(OperatorRequest):
    """Go on with a rollout that was paused."""


class PromoteRollout(OperatorRequest):
    """Go on past a pause point of the spec."""


class RollBack(OperatorRequest):
    """Go back to the last generation that was good, or to this one."""

    to: Annotated[
        Generation | None, Field(description="A generation other than the last good one.")
    ] = None


class ReplaceSlots(OperatorRequest):
    """Replace these slots (all of them if none is named): each is up before another is stopped."""

    slots: Annotated[
        Slots, Field(description="A slot to replace; repeatable, by default all.")
    ] = ()


# ── from controllers ────────────────────────────────────────────────────────────────────────────


class Look(Payload):
    """Something changed in the authority: read it there. It says nothing to be believed."""

    why: PlainText = "something changed"
    # What changed, if it is known: of a workload, this region's share of this generation.
    region: RegionId | None = None
    generation: Generation | None = None
    # By the region's clock: a reader of the share since then knows what is hinted at.
    seen_until: AwareDatetime | None = None


class Wake(Payload):
    """What the placement waits for may have appeared."""

    why: PlainText = "capacity was freed"
