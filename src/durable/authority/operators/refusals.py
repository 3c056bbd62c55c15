"""A command without the right is in the audit, although its own transaction was rolled back."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeVar

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import NotAllowedError
from durable.model.ids import ActorId
from durable.model.refusal import Refusal

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


async def _record(databases: Databases, refused: NotAllowedError) -> None:
    what = {"verb": refused.verb.value, "on": str(refused.scope)}
    target = f"operator/{refused.actor}"
    await record_refusal(databases, refused.actor, target, refused.refusal, what)


@global_transaction("durable_operators", "record in the audit that {actor} was refused")
async def record_refusal(
    connection: AsyncConnection,
    actor: ActorId,
    target: str,
    refusal: Refusal,
    what: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """For what a command or the SDK refuses itself, before any workflow hears of it."""
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action="refuse command",
        target=target,
        after={**what, "code": refusal.code.value, "sentence": refusal.sentence},
    )
