"""What a policy's workflow and its activities exchange: plain values with defaults."""

from durable.model.ids import PolicyRevision
from durable.model.operators.rights import OperatorMessage
from durable.model.policy.rollout import PolicyOrder
from durable.validation.value import Value


class PolicyKey(Value):
    """Which revision."""

    revision: PolicyRevision


class OrderStep(Value):
    """An order, and the message that asks for it."""

    order: PolicyOrder
    asked: OperatorMessage
