"""What a recovery's workflow and its activities exchange: plain values with defaults."""

from durable.model.operators.rights import OperatorMessage
from durable.model.recovery.recoveries import RecoveryOrder
from durable.validation.value import Value


class RecoveryOrderStep(Value):
    """An order, and the message that asks for it."""

    order: RecoveryOrder
    asked: OperatorMessage
