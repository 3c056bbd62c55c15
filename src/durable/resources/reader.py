"""The reading half of the SDK: everything in it comes from the authority, without Temporal.

for node in await durable.get("nodes", region="us-east"):
    print(node.node, node.used)
status = await durable.show("recovery", "us-east")
async for status in durable.follow("drain", "drain/us-east/node-7"):
    print(status.left)
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar, overload

from pydantic import ValidationError

from durable.authority.db.connection import Databases
from durable.authority.workloads.generations import list_generations, unknown_generation
from durable.explain.explain import explain, require_workload
from durable.explain.explanation import Explanation
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.rollout import GenerationRecord
from durable.resources.resource import (
    AskWorkflows,
    Filters,
    Resource,
    Rows,
    Sources,
    unasked,
)
from durable.resources.table import find_resource
from durable.validation.value import Value

R = TypeVar("R", bound=Value)

POLL_SECONDS = 0.5


class Reader:
    """What can be read of the control plane."""

    def __init__(self, databases: Databases, workflows: AskWorkflows = unasked) -> None:
        self.databases = databases
        self._workflows = workflows

    @property
    def sources(self) -> Sources:
        return Sources(self.databases, self._workflows)

    # ── resources ───────────────────────────────────────────────────────────────────────────────

    @overload
    async def get(self, kind: Resource[R], **filters: Any) -> Rows[R]: ...
    @overload
    async def get(self, kind: str, **filters: Any) -> Rows[Any]: ...
    async def get(self, kind: str | Resource[Any], **filters: Any) -> Rows[Any]:
        """Lists one kind of resource, such as nodes, with the regions that did not answer.

        Filters, of which each kind knows some: `tenant`, `region`, `workload` (as TENANT/NAME),
        `ended=True` for what has ended as well, and `limit`.
        """
        resource = find_resource(kind) if isinstance(kind, str) else kind
        wanted = read_filters(resource, filters)
        found = await resource.read(self.sources, wanted)
        is_limited = "limit" in resource.filters
        rows = found.rows[: wanted.limit] if is_limited else found.rows
        return Rows(rows, found.unreachable, found.ended, len(found.rows))

    async def show(self, kind: str | Resource[Any], name: str) -> Any:
        """Everything that is known of one resource, by the name that lists give it."""
        resource = find_resource(kind) if isinstance(kind, str) else kind
        if resource.show is not None:
            try:
                return await resource.show(self.sources, name)
            except ValueError as error:
                sentence = f"There is no {resource.singular} {name[:100]}: {error}."
                raise RefusedError(resource.unknown, sentence[:500]) from None
        every = Filters(ended="ended" in resource.filters)
        rows = await resource.read(self.sources, every)
        row = next((row for row in rows if resource.name_of(row) == name), None)
        if row is None:
            raise RefusedError(
                resource.unknown,
                f"There is no {resource.singular} {name[:100]}; see `durable get {resource.name}`.",
            )
        return row

    async def follow(self, kind: str | Resource[Any], name: str) -> AsyncIterator[Any]:
        """What `show` answers whenever that has changed, until the resource has ended."""
        resource = find_resource(kind) if isinstance(kind, str) else kind
        last: Any = None
        while True:
            shown = await self.show(resource, name)
            if shown != last:
                last = shown
                yield shown
            if resource.has_ended(shown):
                return
            await asyncio.sleep(POLL_SECONDS)

    # ── why ─────────────────────────────────────────────────────────────────────────────────────

    async def explain(
        self,
        tenant: str,
        name: str,
        *,
        generation: int | None = None,
        slot: int | None = None,
        attempt: int | None = None,
    ) -> Explanation:
        """Why a workload is where it is: decisions, what came of them, and who acts next."""
        return await explain(
            self.databases,
            *names_of(tenant, name),
            generation=generation,
            slot=slot,
            attempt=attempt,
        )

    async def generations(self, tenant: str, name: str) -> list[GenerationRecord]:
        """The last generations, oldest first: who wanted each, and what became of it."""
        workload = names_of(tenant, name)
        await require_workload(self.databases, *workload)
        return await list_generations(self.databases, *workload)

    async def generation(self, tenant: str, name: str, number: int) -> GenerationRecord:
        """One generation of the history, or a refusal that names those that are known."""
        known = {one.generation: one for one in await self.generations(tenant, name)}
        if number not in known:
            raise unknown_generation(*names_of(tenant, name), number, known)
        return known[number]


def names_of(tenant: str, name: str) -> tuple[TenantId, WorkloadName]:
    try:
        return TenantId(tenant), WorkloadName(name)
    except ValueError as error:
        raise RefusedError(RefusalCode.UNKNOWN_WORKLOAD, f"No such workload: {error}.") from None


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
        raise RefusedError(RefusalCode.INVALID, sentence[:500]) from None
