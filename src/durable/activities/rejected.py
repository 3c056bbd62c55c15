"""Messages that a workflow took from people or could not take, put into the audit."""

from durable.activities.steps import Rejected
from durable.authority.audit.messages import audit_message
from durable.authority.db.connection import Databases
from durable.model.ids import ActorId

ACTOR = ActorId("controller:messages")


async def audit_messages(databases: Databases, chain: str, rejected: Rejected) -> None:
    """One event for each message, once each, however often this is sent."""
    for number, message in enumerate(rejected.messages):
        await audit_message(
            databases,
            chain,
            actor=ACTOR,
            action=f"{'take' if message.taken else 'reject'} message {message.name}",
            target=rejected.target,
            key=f"{rejected.key}/{number}",
            detail={
                "why": message.why,
                "payload": message.payload,
                "received_at": message.at.isoformat(),
            },
        )
