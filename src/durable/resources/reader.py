"""The reading half of the SDK: everything in it comes from the authority.

Temporal is asked only by a list that is to say of each row what is wrong with its workflow.

for node in await durable.get("nodes", region="us-east"):
    print(node.node, node.used)
status = await durable.show("recovery", "us-east")
async for status in durable.follow("drain", "drain/us-east/node-7"):
    print(status.left)
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar, overload

from pydantic import ValidationError

from durable.authority.db.errors import AuthorityUnreachableError
from durable.model.refusal import RefusalCode, RefusedError
from durable.resources.lookups import Lookups, names_of
from durable.resources.resource import (
    Filters,
    Resource,
    Rows,
    Sources,
)
from durable.resources.table import find_resource
from durable.validation.value import Value

R = TypeVar("R", bound=Value)
T = TypeVar("T")

POLL_SECONDS = 0.5


class Reader(Lookups):
    """What can be read of the control plane."""

    @overload
    async def get(
        self, kind: Resource[R], *, problems: bool = False, **filters: Any
    ) -> Rows[R]: ...
    @overload
    async def get(self, kind: str, *, problems: bool = False, **filters: Any) -> Rows[Any]: ...
    async def get(
        self, kind: str | Resource[Any], *, problems: bool = False, **filters: Any
    ) -> Rows[Any]:
        """Lists one kind of resource, such as nodes, with the regions that did not answer.

        Filters, of which each kind knows some: `tenant`, `region`, `workload` (as TENANT/NAME),
        `ended=True` for what has ended as well, and `limit`. With `problems=True`, Temporal is
        asked as well, and workloads and placements say what keeps them from being managed.
        """
        resource = find_resource(kind) if isinstance(kind, str) else kind
        wanted = read_filters(resource, filters)
        sources = self.sources if problems else Sources(self.databases)
        found = await resource.read(sources, wanted)
        is_limited = "limit" in resource.filters
        rows = found.rows[: wanted.limit] if is_limited else found.rows
        return Rows(rows, found.unreachable, found.ended, len(found.rows))

    async def show(self, kind: str | Resource[Any], name: str) -> Any:
        """Everything that is known of one resource, by the name that lists give it."""
        resource = find_resource(kind) if isinstance(kind, str) else kind
        if resource.show is not None:
            try:
                return await resource.show(Sources(self.databases), name)
            except ValueError as error:
                sentence = f"There is no {resource.singular} {name[:100]}: {error}."
                raise RefusedError(resource.unknown, sentence) from None
        every = Filters(ended="ended" in resource.filters)
        rows = await resource.read(Sources(self.databases), every)
        row = next((row for row in rows if resource.name_of(row) == name), None)
        if row is None and rows.unreachable:
            # It may well exist in one of these.
            raise AuthorityUnreachableError(next(iter(rows.unreachable.values())))
        if row is None:
            raise RefusedError(
                resource.unknown,
                f"There is no {resource.singular} {name[:100]}; see `durable get {resource.name}`.",
            )
        return row

    async def follow(self, kind: str | Resource[Any], name: str) -> AsyncIterator[Any]:
        """What `show` answers whenever that has changed, until the resource has ended."""
        resource = find_resource(kind) if isinstance(kind, str) else kind
        async for shown in changes(lambda: self.show(resource, name), resource.has_ended):
            yield shown


async def changes(
    read: Callable[[], Awaitable[T | None]], has_ended: Callable[[T], bool]
) -> AsyncIterator[T]:
    """What is read whenever that has changed, until it has ended; None is nothing to see yet."""
    last: T | None = None
    while True:
        now = await read()
        if now is not None and now != last:
            last = now
            yield now
        if now is not None and has_ended(now):
            return
        await asyncio.sleep(POLL_SECONDS)


def read_filters(resource: Resource[Any], given: dict[str, Any]) -> Filters:
    """The filters as values; refuses those that the resource does not know."""
    known = ["limit" if one == "last" else one for one in resource.filters]
    unknown = [name for name, value in given.items() if name not in known and value is not None]
    if unknown:
        allowed = ", ".join(known)
        raise RefusedError(
            RefusalCode.INVALID,
            f"{resource.name.capitalize()} cannot be filtered by {unknown[0]}; allowed: {allowed}.",
        )
    if "workload" in known and given.get("workload") is None:
        raise RefusedError(RefusalCode.INVALID, "Name the workload: workload='TENANT/NAME'.")
    wanted = {name: value for name, value in given.items() if value is not None}
    if isinstance(wanted.get("workload"), str):
        tenant, _, name = wanted["workload"].partition("/")
        wanted["workload"] = names_of(tenant, name)
    try:
        return Filters.model_validate(wanted)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        sentence = f"{problem['loc'][0]}: {problem['msg']}"
        raise RefusedError(RefusalCode.INVALID, sentence) from None
