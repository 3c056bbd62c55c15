"""Messages that a workflow received, written into the audit."""

from durable.authority.audit.events import audit_message
from durable.authority.db.connection import Databases
from durable.model.ids import ActorId
from durable.signals.status import MessageRecord
from durable.validation.value import Value

ACTOR = ActorId("controller:messages")


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
                "answer": message.answer,
                "payload": message.payload,
                "received_at": message.at.isoformat(),
            },
        )
