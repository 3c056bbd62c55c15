"""What can be sent to a drain, and what its query `status` answers."""

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

    deadline: DrainDeadline = DEFAULT_DEADLINE
    # Jobs are not stopped: the drain waits for their end.
    wait_for_jobs: bool = False


class CancelDrain(OperatorRequest):
    """Replace nothing more, and let the nodes take work again."""


class DrainStatus(Value):
    target: NodesTarget
    # None while nobody has asked for anything.
    drain: Drain | None
    progress: DrainProgress | None = None
    # Why the region could not be asked.
    unreachable: str = ""
    rejected: tuple[MessageRecord, ...] = ()
    rejected_count: int = 0

    @property
    def state(self) -> DrainState:
        return DrainState.DRAINING if self.drain is None else self.drain.state
