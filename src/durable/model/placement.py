"""Where slots are, and where they failed."""

from pydantic import AwareDatetime

from durable.model.ids import NodeId, Slot
from durable.validation.value import Value


class SlotOnNode(Value):
    slot: Slot
    node: NodeId


class Crash(SlotOnNode):
    """A slot failed on a node; for as long as the policy says it does not go back there."""

    at: AwareDatetime
