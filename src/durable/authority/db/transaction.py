"""One way to write a transaction: a function of a connection, called with the databases.

    @regional_transaction("durable_operator", "cordon {node}")
    async def cordon(connection: AsyncConnection, region: RegionId, node: NodeId) -> None: ...

    await cordon(databases, region, node)

The body is the transaction. It may run more than once, so it must be idempotent (see `transact`).
The second argument says what could not be done, in terms of the function's own parameters.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.model.ids import RegionId

P = ParamSpec("P")
T = TypeVar("T")


def global_transaction(
    role: str, doing: str
) -> Callable[
    [Callable[Concatenate[AsyncConnection, P], Awaitable[T]]],
    Callable[Concatenate[Databases, P], Coroutine[Any, Any, T]],
]:
    """A transaction on the global side, under this role."""

    def decorate(
        body: Callable[Concatenate[AsyncConnection, P], Awaitable[T]],
    ) -> Callable[Concatenate[Databases, P], Coroutine[Any, Any, T]]:
        describe = _describe(body, doing)

        @wraps(body)
        async def run(databases: Databases, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await transact(
                databases.at_global(role),
                lambda connection: body(connection, *args, **kwargs),
                doing=lambda: describe(*args, **kwargs),
            )

        return run

    return decorate


def regional_transaction(
    role: str, doing: str, *, commits_each: bool = False
) -> Callable[
    [Callable[Concatenate[AsyncConnection, RegionId, P], Awaitable[T]]],
    Callable[Concatenate[Databases, RegionId, P], Coroutine[Any, Any, T]],
]:
    """A transaction in the database of the region that the call names first, under this role.

    With `commits_each` every statement is a transaction of its own, as the reader's always are: for
    what only reads, and for what writes with one statement.
    """

    def decorate(
        body: Callable[Concatenate[AsyncConnection, RegionId, P], Awaitable[T]],
    ) -> Callable[Concatenate[Databases, RegionId, P], Coroutine[Any, Any, T]]:
        describe = _describe(body, doing)

        @wraps(body)
        async def run(
            databases: Databases, region: RegionId, /, *args: P.args, **kwargs: P.kwargs
        ) -> T:
            return await transact(
                databases.at_region(region, role, commits_each=commits_each),
                lambda connection: body(connection, region, *args, **kwargs),
                doing=lambda: describe(region, *args, **kwargs),
            )

        return run

    return decorate


def _describe(body: Callable[..., object], doing: str) -> Callable[..., str]:
    """Fills the sentence in from the call's arguments; only a failure needs it."""
    signature = inspect.signature(body)

    def describe(*args: Any, **kwargs: Any) -> str:
        return doing.format(**signature.bind(None, *args, **kwargs).arguments)

    return describe
