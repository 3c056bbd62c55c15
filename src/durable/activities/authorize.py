"""Whether somebody may do what a message asks for, before a workflow acts on it."""

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity

from durable.activities.workload import refusal_failure
from durable.authority.db.connection import Databases
from durable.authority.operators.authorization import check_message
from durable.model.operators.rights import OperatorMessage, Scope, Verb
from durable.model.refusal import RefusedError
from durable.validation.value import Value


class AuthorizeStep(Value):
    """A message, what it needs the right to do, and where."""

    message: OperatorMessage
    verb: Verb
    scope: Scope
    # The same in every try; None where a region counts the request together with its effect.
    delivery: str | None = None
    # What it is answered if it counts; None if it is going to be refused.
    answer: str | None = None


class AuthorizationActivities:
    """For messages that are acted on in a region: rights are the global side's."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    @activity.defn
    async def authorize(self, step: AuthorizeStep) -> str | None:
        """Refuses what the actor may not do, or has not signed; a repetition is answered again."""
        try:
            return await check_message(
                self._databases,
                step.message,
                step.verb,
                step.scope,
                delivery=step.delivery,
                answer=step.answer,
            )
        except RefusedError as error:
            raise refusal_failure(error) from error

    @property
    def all(self) -> Sequence[Callable[..., Any]]:
        return (self.authorize,)
