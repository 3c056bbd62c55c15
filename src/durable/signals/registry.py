"""Every message, one row each: who may send it, what it carries, what it does, and an example.

The handlers and their descriptions, the pages in the Temporal UI, `Durable.send`, the commands that
send a message and their options, `durable send` with its help, and the audit derive from these
rows. A new message is one row here, one payload, and one handler `on_<name>` in the workflow that
receives it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from durable.model.operators.rights import Verb
from durable.signals import drains, overrides, payloads, policies, recoveries
from durable.signals.names import DRAIN, OVERRIDE, PLACEMENT, POLICY, RECOVERY, WORKLOAD
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
    # What its actor must have the right to do; a controller's message changes nothing by itself.
    verb: Verb | None = None
    example: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Whether its workflow audits it; others are audited together with what they change.
    is_audited: bool = False
    is_in_cli: bool = False
    # Whether a person has to say why; else a command says that it was the command.
    needs_reason: bool = False

    def __post_init__(self) -> None:
        assert (self.sender is Sender.PERSON) == (self.verb is not None), "people need a right"

    @property
    def description(self) -> str:
        """What the Temporal UI shows beside the message."""
        return f"{self.sentence} Example: {json.dumps(self.example)}"


_WHO = {"actor": "person:alice", "reason": "INC-42", "request_id": "INC-42-1"}

REGISTRY: tuple[Message, ...] = (
    Message(
        "apply", WORKLOAD, payloads.ApplyWorkload,
        "Set the desired state; send it with `durable apply -f FILE` or the SDK.",
        verb=Verb.APPLY,
        example={**_WHO, "manifest": {"tenant": "risk", "name": "risk-api", "spec": {}}},
    ),
    Message(
        "scale", WORKLOAD, payloads.ScaleWorkload, "Change the replica count.",
        verb=Verb.SCALE, example={**_WHO, "replicas": 6},
    ),
    Message(
        "delete", WORKLOAD, payloads.DeleteWorkload, "Stop and release everything, then end.",
        verb=Verb.DELETE, example=_WHO,
    ),
    Message(
        "pause", WORKLOAD, payloads.PauseRollout,
        "Replace nothing more of a rollout until it is resumed.", verb=Verb.ROLLOUT,
        example=_WHO,
    ),
    Message(
        "resume", WORKLOAD, payloads.ResumeRollout, "Go on with a rollout that was paused.",
        verb=Verb.ROLLOUT, example=_WHO,
    ),
    Message(
        "promote", WORKLOAD, payloads.PromoteRollout, "Go on past a pause point of the spec.",
        verb=Verb.ROLLOUT, example=_WHO,
    ),
    Message(
        "rollback", WORKLOAD, payloads.RollBack,
        "Go back to the last generation that was good, or to another one that was.",
        verb=Verb.ROLLOUT, example={**_WHO, "to": 1},
    ),
    Message(
        "replace", WORKLOAD, payloads.ReplaceSlots,
        "Replace slots (all if none is named), each up before another is stopped.",
        verb=Verb.REPLACE, example={**_WHO, "slots": [0]}, needs_reason=True,
    ),
    Message(
        "look", WORKLOAD, payloads.Look, "A share changed: read it from the authority.",
        Sender.CONTROLLER,
    ),
    Message(
        "retry_now", PLACEMENT, payloads.RetryPlacement,
        "Try to place what waits now instead of at the end of the backoff.",
        verb=Verb.RETRY, example=_WHO, is_audited=True, is_in_cli=True, needs_reason=True,
    ),
    Message(
        "evict", PLACEMENT, payloads.EvictSlots,
        "Stop slots (all if none is named) and place them again, within the disruption allowance "
        "unless forced.",
        verb=Verb.EVICT, example={**_WHO, "slots": [0], "force": False}, is_audited=True,
        is_in_cli=True, needs_reason=True,
    ),
    Message(
        "look", PLACEMENT, payloads.Look, "Share or claims changed: read them from the authority.",
        Sender.CONTROLLER,
    ),
    Message(
        "wake", PLACEMENT, payloads.Wake, "What it waits for may have appeared.",
        Sender.CONTROLLER,
    ),
    Message(
        "drain", DRAIN, drains.DrainNodes,
        "Cordon the nodes and have all that runs there replaced; send it with `durable drain`.",
        verb=Verb.DRAIN, example={**_WHO, "deadline": "1h", "wait_for_jobs": False},
        is_audited=True,
    ),
    Message(
        "cancel", DRAIN, drains.CancelDrain,
        "Replace nothing more, and let the nodes that it cordoned take work again.",
        verb=Verb.DRAIN, example=_WHO, is_audited=True,
    ),
    Message(
        "promote", POLICY, policies.PromotePolicy,
        "Begin with one region; or go on after a pause, or before a region's time is over.",
        verb=Verb.POLICY, example={**_WHO, "after": 0, "canary": "us-east"},
    ),
    Message(
        "pause", POLICY, policies.PausePolicy,
        "Bring it into force nowhere else until it is promoted again.",
        verb=Verb.POLICY, example={**_WHO, "after": 1},
    ),
    Message(
        "rollback", POLICY, policies.RollBackPolicy,
        "Roll the revision back in every region; with reroll, replace what it has placed.",
        verb=Verb.POLICY, example={**_WHO, "after": 1, "to": 1, "reroll": False},
        needs_reason=True,
    ),
    Message(
        "propose", OVERRIDE, overrides.ProposeOverride,
        "Propose an override: it is in force at once, or when a second person approves it. The "
        "same JSON may be the input with which the workflow is started.",
        example={
            **_WHO, "kind": "avoid-zone", "scope": {"region": "us-east", "zone": "us-east-a"},
            "effect": {"move": True}, "ttl": "30m", "ticket": "INC-42",
        },
        verb=Verb.OVERRIDE,
        needs_reason=True,
    ),
    Message(
        "approve", OVERRIDE, overrides.ApproveOverride,
        "Agree to what another person proposed; from now on it is in force.",
        verb=Verb.APPROVE, example=_WHO, needs_reason=True,
    ),
    Message(
        "reject", OVERRIDE, overrides.RejectOverride,
        "Refuse what was proposed; it never has an effect.", verb=Verb.APPROVE,
        example=_WHO, needs_reason=True,
    ),
    Message(
        "revoke", OVERRIDE, overrides.RevokeOverride, "End it now.",
        verb=Verb.OVERRIDE, example=_WHO, needs_reason=True,
    ),
    Message(
        "extend", OVERRIDE, overrides.ExtendOverride,
        "Let it last longer, never past the maximum of its kind.",
        verb=Verb.OVERRIDE, example={**_WHO, "by": "30m"}, needs_reason=True,
    ),
    Message(
        "confirm", RECOVERY, recoveries.ConfirmLoss,
        "The region is lost: fence it, and move its work elsewhere.",
        verb=Verb.FENCE, example=_WHO,
    ),
    Message(
        "veto", RECOVERY, recoveries.VetoLoss,
        "The region is not lost: change nothing, however it looks. Only before it is fenced.",
        verb=Verb.FENCE, example=_WHO,
    ),
    Message(
        "failback", RECOVERY, recoveries.FailBack,
        "Open the region, and give it back what was moved, each replica up there before another "
        "is stopped.",
        verb=Verb.FENCE, example=_WHO,
    ),
    Message(
        "settle", RECOVERY, recoveries.SettleRecovery,
        "Leave what was moved where it is; the region takes new work once it answers.",
        verb=Verb.FENCE, example=_WHO,
    ),
    *(
        Message(
            "look", to, payloads.Look, "Something changed: read it from the authority.",
            Sender.CONTROLLER,
        )
        for to in (DRAIN, POLICY, OVERRIDE, RECOVERY)
    ),
)  # fmt: skip


def messages_to(workflow: str, *, sender: Sender | None = None) -> tuple[Message, ...]:
    """The messages that this kind of workflow accepts, or those of one kind of sender."""
    return tuple(
        message
        for message in REGISTRY
        if message.to == workflow and sender in (None, message.sender)
    )
