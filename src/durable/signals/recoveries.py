"""What can be sent to a recovery, and what its query `status` answers."""

from durable.model.ids import RegionId
from durable.model.recovery.recoveries import RecoveryPhase, RecoveryProgress
from durable.signals.payloads import OperatorRequest
from durable.signals.status import MessageRecord
from durable.validation.value import Value


class ConfirmLoss(OperatorRequest):
    """The region is lost: fence it, and move its work elsewhere."""


class VetoLoss(OperatorRequest):
    """The region is not lost: change nothing, however it looks."""


class FailBack(OperatorRequest):
    """The region is back: open it, and give it back what was moved out of it."""


class SettleRecovery(OperatorRequest):
    """What was moved stays where it is; the region takes new work once it answers."""


class RecoveryStatus(Value):
    region: RegionId
    epoch: int
    # None while no loss is known.
    progress: RecoveryProgress | None
    unreachable: str = ""
    rejected: tuple[MessageRecord, ...] = ()
    rejected_count: int = 0

    @property
    def phase(self) -> RecoveryPhase | None:
        return None if self.progress is None else self.progress.recovery.phase
