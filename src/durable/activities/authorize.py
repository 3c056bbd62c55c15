"""Whether somebody may do what a message asks for, before a workflow acts on it."""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from durable.activities.workload import refusal_failure
from durable.authority.db.connection import Databases
from durable.authority.operators.authorization import check_message
from durable.model.operators.rights import Delivery, OperatorMessage, Scope, Verb
from durable.model.refusal import RefusedError
from durable.validation.value import Value


class AuthorizeStep(Value):
    """A message, what it needs the right to do, and where."""

    asked: OperatorMessage
    verb: Verb
    scope: Scope
    # The same in every try; None where the authority counts the request together with its effect.
    delivery: Delivery | None = None
    # Whether the same request was signed when it came first.
    was_signed: bool = False


class AuthorizationActivities:
    """For messages that are acted on in a region: rights are the global side's."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    @activity.defn
    async def authorize(self, step: AuthorizeStep) -> None:
        """Refuses what the actor may not do, or has not signed."""
        try:
            await check_message(
                self._databases,
                step.asked,
                step.verb,
                step.scope,
                step.delivery,
                was_signed=step.was_signed,
            )
        except RefusedError as error:
            raise refusal_failure(error) from error

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.authorize,)
