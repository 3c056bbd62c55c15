"""What can be sent to a drain, and what its query `status` answers."""

from typing import Annotated

from pydantic import Field

from durable.model.fleet.drain import (
    DEFAULT_DEADLINE,
    Drain,
    DrainDeadline,
    DrainProgress,
    DrainState,
    NodesTarget,
)
from durable.signals.payloads import OperatorRequest
from durable.signals.status import MessageRecord
from durable.validation.value import Value


class DrainNodes(OperatorRequest):
    """Cordon the nodes and have everything on them replaced, until the deadline."""

    deadline: Annotated[DrainDeadline, Field(description="Give up after this, such as 30m.")] = (
        DEFAULT_DEADLINE
    )
    wait_for_jobs: Annotated[
        bool, Field(description="Let jobs end instead of running them elsewhere.")
    ] = False


class CancelDrain(OperatorRequest):
    """Replace nothing more, and let the nodes take work again."""


class DrainStatus(Value):
    target: NodesTarget
    # None while nothing has been asked for.
    drain: Drain | None
    progress: DrainProgress | None = None
    # Why the region could not be asked.
    unreachable: str = ""
    rejected: tuple[MessageRecord, ...] = ()
    rejected_count: int = 0

    @property
    def state(self) -> DrainState:
        return DrainState.DRAINING if self.drain is None else self.drain.state
