"""Every message, one row each: who may send it, what it carries, what it does, and an example.

The handlers and their descriptions, the pages in the Temporal UI, `durable send` and its help, and
the audit derive from these rows. A new message is one row here, one payload, and one handler
`on_<name>` in the workflow that receives it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from durable.signals import drains, payloads
from durable.signals.names import DRAIN, PLACEMENT, WORKLOAD
from durable.signals.payloads import Payload


class Sender(StrEnum):
    """Whose message it is."""

    PERSON = "person"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class Message:
    """One kind of message to one kind of workflow."""

    name: str
    to: str
    payload: type[Payload]
    sentence: str
    sender: Sender = Sender.PERSON
    example: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_audited: bool = True
    is_in_cli: bool = False

    @property
    def has_ledger(self) -> bool:
        """Whether the authority counts its request ids, and remembers what it answered."""
        return self.to == WORKLOAD

    @property
    def description(self) -> str:
        """What the Temporal UI shows beside the message."""
        return f"{self.sentence} Example: {json.dumps(self.example)}"


_WHO = {"actor": "alice@example.com", "reason": "INC-42", "request_id": "INC-42-1"}

REGISTRY: tuple[Message, ...] = (
    Message(
        "apply", WORKLOAD, payloads.ApplyWorkload,
        "Set the desired state; send it with `durable apply -f FILE` or the SDK.",
        example={**_WHO, "manifest": {"tenant": "risk", "name": "risk-api", "spec": {}}},
        is_audited=False,  # the admission audits it together with what it changes
    ),
    Message(
        "scale", WORKLOAD, payloads.ScaleWorkload, "Change the replica count.",
        example={**_WHO, "replicas": 6}, is_audited=False,
    ),
    Message(
        "delete", WORKLOAD, payloads.DeleteWorkload, "Stop and release everything, then end.",
        example=_WHO, is_audited=False,
    ),
    Message(
        "pause", WORKLOAD, payloads.PauseRollout,
        "Replace nothing more of a rollout until somebody resumes.", example=_WHO,
        is_audited=False,
    ),
    Message(
        "resume", WORKLOAD, payloads.ResumeRollout, "Go on with a rollout that was paused.",
        example=_WHO, is_audited=False,
    ),
    Message(
        "promote", WORKLOAD, payloads.PromoteRollout, "Go on past a pause point of the spec.",
        example=_WHO, is_audited=False,
    ),
    Message(
        "rollback", WORKLOAD, payloads.RollBack,
        "Go back to the last generation that was good, or to another one that was.",
        example={**_WHO, "to": 1}, is_audited=False,
    ),
    Message(
        "replace", WORKLOAD, payloads.ReplaceSlots,
        "Replace slots (all if none is named), each up before another is stopped.",
        example={**_WHO, "slots": [0]}, is_audited=False,
    ),
    Message(
        "look", WORKLOAD, payloads.Look, "A share changed: read it from the authority.",
        Sender.CONTROLLER, is_audited=False,
    ),
    Message(
        "hold", PLACEMENT, payloads.HoldPlacement,
        "Place nothing new until resumed; what runs stays.", example=_WHO, is_in_cli=True,
    ),
    Message(
        "resume", PLACEMENT, payloads.ResumePlacement, "Place again after a hold.",
        example=_WHO, is_in_cli=True,
    ),
    Message(
        "retry_now", PLACEMENT, payloads.RetryPlacement,
        "Try to place what waits now instead of at the end of the backoff.",
        example=_WHO, is_in_cli=True,
    ),
    Message(
        "evict", PLACEMENT, payloads.EvictSlots,
        "Stop slots (all if none is named) and place them again, within the disruption allowance "
        "unless forced.",
        example={**_WHO, "slots": [0], "force": False}, is_in_cli=True,
    ),
    Message(
        "look", PLACEMENT, payloads.Look, "Share or claims changed: read them from the authority.",
        Sender.CONTROLLER, is_audited=False,
    ),
    Message(
        "wake", PLACEMENT, payloads.Wake, "What it waits for may have appeared.",
        Sender.CONTROLLER, is_audited=False,
    ),
    Message(
        "drain", DRAIN, drains.DrainNodes,
        "Cordon the nodes and have all that runs there replaced; send it with `durable drain`.",
        example={**_WHO, "deadline": "1h", "wait_for_jobs": False},
    ),
    Message(
        "cancel", DRAIN, drains.CancelDrain,
        "Replace nothing more, and let the nodes that it cordoned take work again.",
        example=_WHO,
    ),
    Message(
        "look", DRAIN, payloads.Look, "Something changed: read it from the authority.",
        Sender.CONTROLLER, is_audited=False,
    ),
)  # fmt: skip


def messages_to(workflow: str, *, sender: Sender | None = None) -> tuple[Message, ...]:
    """The messages that this kind of workflow accepts, or those of one kind of sender."""
    return tuple(
        message
        for message in REGISTRY
        if message.to == workflow and sender in (None, message.sender)
    )
