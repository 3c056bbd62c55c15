"""What a recovery's workflow and its activities exchange: plain values with defaults."""

from durable.model.recoveries import RecoveryOrder
from durable.model.rights import Asked
from durable.validation.value import Value


class RecoveryOrderStep(Value):
    """An order, and the message that asks for it."""

    order: RecoveryOrder
    asked: Asked
