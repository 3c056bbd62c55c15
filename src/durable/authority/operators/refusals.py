"""A command that somebody may not give is in the audit, although its own transaction was undone."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import NotAllowedError

P = ParamSpec("P")
T = TypeVar("T")


def audits_refusals(
    command: Callable[Concatenate[Databases, P], Awaitable[T]],
) -> Callable[Concatenate[Databases, P], Coroutine[Any, Any, T]]:
    """For what writes the authority itself; a message is audited by the workflow that takes it."""

    @wraps(command)
    async def run(databases: Databases, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await command(databases, *args, **kwargs)
        except NotAllowedError as refused:
            await _record(databases, refused)
            raise

    return run


@global_transaction("durable_operators", "record in the audit that {refused.actor} was refused")
async def _record(connection: AsyncConnection, refused: NotAllowedError) -> None:
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=refused.actor,
        action="refuse command",
        target=f"operator/{refused.actor}",
        after={
            "verb": refused.verb.value,
            "on": str(refused.scope),
            "code": refused.refusal.code.value,
            "sentence": refused.refusal.sentence,
        },
    )
