"""Messages that a workflow received, written into the audit."""

import re

from durable.authority.audit.events import audit_message
from durable.authority.db.connection import Databases
from durable.model.ids import ActorId
from durable.signals.status import MessageRecord
from durable.validation.value import Value

ACTOR = ActorId("controller:messages")
# In whatever was sent, readable or not.
_ACTOR = re.compile(r'"actor"\s*:\s*"([^"\\]{1,128})"')


class AuditMessages(Value):
    """Messages that one workflow accepted or rejected."""

    target: str
    messages: tuple[MessageRecord, ...]
    # Names this batch, so that it is written once however often it is sent.
    key: str


async def write_messages(databases: Databases, chain: str, step: AuditMessages) -> None:
    """One event for each message, once each, however often this is sent."""
    for number, message in enumerate(step.messages):
        await audit_message(
            databases,
            chain,
            actor=ACTOR,
            action=f"{'accept' if message.accepted else 'reject'} message {message.name}",
            target=step.target,
            key=f"{step.key}/{number}",
            detail={
                **_claimed(message.payload),
                "answer": message.answer,
                "payload": message.payload,
                "received_at": message.at.isoformat(),
            },
        )


def _claimed(payload: str) -> dict[str, str]:
    """Who says to have sent it, so that it is found by that name; a claim, and no proof."""
    found = _ACTOR.search(payload)
    return {} if found is None else {"claimed_actor": found[1]}
