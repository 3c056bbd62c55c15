"""What a policy's workflow and its activities exchange: plain values with defaults."""

from durable.model.ids import PolicyRevision
from durable.model.policy_rollout import PolicyOrder
from durable.model.rights import Asked
from durable.validation.value import Value


class PolicyKey(Value):
    """Which revision."""

    revision: PolicyRevision


class OrderStep(Value):
    """An order, and the message that asks for it."""

    order: PolicyOrder
    asked: Asked
