"""Slots of a workload: where they are, where they crashed, and what was last observed of them."""

from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.ids import NodeId, Slot, Token
from durable.model.states import BindingState
from durable.validation.value import Value


class SlotOnNode(Value):
    slot: Slot
    node: NodeId


class Crash(SlotOnNode):
    """A slot failed on a node, and does not go back there for as long as the policy says."""

    at: AwareDatetime


class ObservedSlot(Value):
    """A slot with a live claim: where it is, and what was last observed of it."""

    slot: Slot
    token: Token
    attempt: Annotated[int, Field(ge=1)]
    node: NodeId
    # None while the claim is a reservation that was not bound yet.
    state: BindingState | None = None
    evidence: str = ""
    # Where its output is kept on its node, if its agent keeps any.
    log_directory: str | None = None
    since: AwareDatetime | None = None
    stop_requested: bool = False
    # When the reservation lapses, unless it is bound before.
    expires_at: AwareDatetime | None = None
