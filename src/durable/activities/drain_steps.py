"""What a drain and its activities exchange: plain values with defaults for new fields."""

from typing import Annotated

from pydantic import Field

from durable.model.fleet.drain import Drain, DrainState
from durable.model.ids import ActorId
from durable.model.operators.rights import OperatorMessage
from durable.validation.value import Value

ACTOR = ActorId("controller:drain")


class MarkResult(Value):
    """How many claims were marked, and whether their workloads could be asked to look."""

    claims: Annotated[int, Field(ge=0)] = 0
    workloads: Annotated[int, Field(ge=0)] = 0
    undelivered: Annotated[int, Field(ge=0)] = 0


class EndStep(Value):
    """How a drain is to end."""

    drain: Drain
    state: DrainState
    actor: ActorId = ACTOR
    outcome: str = ""
    # The message that cancels it.
    message: OperatorMessage | None = None
