"""What a recovery's workflow remembers; how far the recovery is, the authority knows."""

from dataclasses import dataclass, field

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from durable.model.ids import RegionId
    from durable.model.recovery.recoveries import RecoveryKey, RecoveryProgress
    from durable.model.refusal import RefusalCode
    from durable.signals.recoveries import RecoveryStatus
    from durable.workflows.continued import continued
    from durable.workflows.failures import refusal
    from durable.workflows.inbox import MessageLog


@dataclass
class RecoveryMemory:
    """It goes along when the workflow continues as new."""

    progress: RecoveryProgress | None = None
    unreachable: str = ""
    # It cannot be looked after: there is no such region.
    is_refused: bool = False
    messages: MessageLog = field(default_factory=MessageLog)

    @property
    def is_over(self) -> bool:
        return self.is_refused or (self.progress is not None and self.progress.recovery.is_over)

    def status(self, region: RegionId, epoch: int) -> RecoveryStatus:
        """What the query answers."""
        return RecoveryStatus(
            region=region,
            epoch=epoch,
            progress=self.progress,
            unreachable=self.unreachable,
            rejected=tuple(self.messages.rejected),
            rejected_count=self.messages.rejected_count,
        )


def start_of(raw: RawValue | None) -> tuple[RecoveryKey, RecoveryMemory]:
    """Which loss, by the workflow's id, and what the run before this one left.

    Whoever starts it by hand may write anything, and it is not read.
    """
    id = workflow.info().workflow_id
    try:
        key = RecoveryKey.of_id(id)
    except ValueError:
        sentence = (
            f"{id[:100]} names no loss; `durable recovery declare REGION` starts a recovery as "
            "recovery/REGION/EPOCH."
        )
        raise refusal(RefusalCode.INVALID, sentence) from None
    left = continued(raw)
    if left is None:
        return key, RecoveryMemory()
    return key, workflow.payload_converter().from_payload(left.payload, RecoveryMemory)
