"""What becomes of a message: its sender's rights are judged, and the audit hears of it."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from durable.activities.failures import refusal_failure
from durable.authority.audit.events import audit_message
from durable.authority.db.connection import Databases
from durable.authority.operators.authorization import check_message, count_message
from durable.model.ids import ActorId
from durable.model.operators.rights import (
    CountedRequest,
    OperatorMessage,
    Scope,
    SlotEffect,
    Verb,
)
from durable.model.refusal import RefusedError
from durable.signals.status import MessageRecord
from durable.validation.value import Value

ACTOR = ActorId("controller:messages")
# In whatever was sent, readable or not.
_ACTOR = re.compile(r'"actor"\s*:\s*"([^"\\]{1,128})"')


class AuthorizeStep(Value):
    """A message, what it needs the right to do, and where."""

    message: OperatorMessage
    verb: Verb
    scope: Scope


class CountStep(AuthorizeStep):
    """The same for one that a workflow acts on in its memory, with what that is to be."""

    # What it is answered if it counts; None if it is going to be refused.
    answer: str | None = None
    effect: SlotEffect = SlotEffect()


class AuthorizationActivities:
    """For messages that are acted on in a region: rights are the global side's."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    @activity.defn
    async def authorize(self, step: AuthorizeStep) -> str | None:
        """Refuses what the actor may not do, or has not signed; a repetition is answered again."""
        try:
            return await check_message(self._databases, step.message, step.verb, step.scope)
        except RefusedError as error:
            raise refusal_failure(error) from error

    @activity.defn
    async def count(self, step: CountStep) -> CountedRequest | None:
        """The same, and counts the request; what was counted before, with what it promised."""
        try:
            return await count_message(
                self._databases, step.message, step.verb, step.scope, step.answer, step.effect
            )
        except RefusedError as error:
            raise refusal_failure(error) from error

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.authorize, self.count)


class AuditMessages(Value):
    """Messages that one workflow accepted or rejected."""

    target: str
    messages: tuple[MessageRecord, ...]
    # Names the life of the workflow, in which each message has a key.
    life: str


async def write_messages(databases: Databases, chain: str, step: AuditMessages) -> None:
    """One event for each message, once each, however often this is sent."""
    for message in step.messages:
        await audit_message(
            databases,
            chain,
            actor=ACTOR,
            action=f"{'accept' if message.accepted else 'reject'} message {message.name}",
            target=step.target,
            key=f"{step.life}/{message.key}",
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
