"""What can be sent to a policy revision, and what its query `status` answers."""

from typing import Annotated

from pydantic import Field, JsonValue

from durable.model.ids import PolicyRevision, RegionId
from durable.model.policy.rollout import PolicyPhase, PolicyProgress
from durable.signals.payloads import OperatorRequest
from durable.signals.status import MessageRecord
from durable.validation.value import Value


class PublishPolicy(OperatorRequest):
    """Add a revision; a command hands this to the authority itself, so that it can be signed."""

    spec: dict[str, JsonValue]


class StartPolicy(Value):
    """What the workflow of a revision is started with."""

    revision: PolicyRevision


class PolicyRequest(OperatorRequest):
    """What a person asks for about one revision."""

    # The number of the last order that the sender has seen; a later one refuses this one.
    after: Annotated[int, Field(ge=0, le=2**53)] | None = None


class PromotePolicy(PolicyRequest):
    """Begin with one region; or go on after a pause, or before the time of a region is over."""

    canary: Annotated[RegionId | None, Field(description="The region that goes first.")] = None


class PausePolicy(PolicyRequest):
    """Bring it into force nowhere else until it is promoted again."""


class RollBackPolicy(PolicyRequest):
    """Roll the revision back in every region."""

    to: Annotated[PolicyRevision | None, Field(description="Go back to this.")] = None
    reroll: Annotated[
        bool, Field(description="Replace what the revision placed, each up before a stop.")
    ] = False


class PolicyStatus(Value):
    revision: PolicyRevision
    # None until the authority has answered.
    progress: PolicyProgress | None = None
    # Why the authority could not be asked, or what it refuses.
    unreachable: str = ""
    rejected: tuple[MessageRecord, ...] = ()
    rejected_count: int = 0

    @property
    def phase(self) -> PolicyPhase | None:
        return None if self.progress is None else self.progress.rollout.phase
