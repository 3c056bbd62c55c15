"""A resource: what a list of one kind is read by, filtered by and shown as."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from durable.authority.db.connection import Databases
from durable.authority.db.everywhere import UnreachableRegions
from durable.authority.fleet.regions import list_regions
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.validation.value import Value

R = TypeVar("R", bound=Value)

LIMIT = 200


class WorkflowTrouble(Value):
    """What is wrong with workflows, by their ids."""

    # Workloads, as TENANT/NAME.
    unmanaged: tuple[str, ...]
    missing: tuple[str, ...]
    # Wanted too, by a change so recent that they may be on their way.
    opening: tuple[str, ...]
    # With the cause of each.
    failing: Mapping[str, str]

    @property
    def troubled_placements(self) -> tuple[str, ...]:
        """Every placement of which something is wrong, whether it runs or not."""
        failing = (id for id in self.failing if id.startswith("placement/"))
        return (*self.missing, *self.opening, *sorted(failing))


# Of one tenant's workflows, or of all; None where Temporal is not asked, or does not answer.
AskWorkflows = Callable[[TenantId | None], Awaitable[WorkflowTrouble | None]]


async def unasked(tenant: TenantId | None) -> None:
    return None


@dataclass(frozen=True)
class Sources:
    """What rows are read from."""

    databases: Databases
    workflows: AskWorkflows = unasked

    async def select_regions(self, requested: RegionId | None = None) -> list[RegionId]:
        """All regions, or the requested one; refuses a region that does not exist."""
        regions = await list_regions(self.databases)
        if requested is None:
            return regions
        if requested not in regions:
            raise unknown_region(requested, regions)
        return [requested]


def unknown_region(requested: RegionId, regions: list[RegionId], hint: str = "") -> RefusedError:
    known = f"the regions are {', '.join(regions)}" if regions else "no region exists yet"
    sentence = f"There is no region {requested}; {known}.{hint}"
    return RefusedError(RefusalCode.UNKNOWN_REGION, sentence)


class Filters(Value):
    """Which rows are wanted; every resource says which of these it knows."""

    tenant: TenantId | None = None
    region: RegionId | None = None
    workload: tuple[TenantId, WorkloadName] | None = None
    # Also what has ended.
    ended: bool = False
    limit: int = LIMIT

    @property
    def enough(self) -> int:
        """How much to read of what grows for ever: one more says that there are more."""
        return self.limit + 1

    @property
    def scope(self) -> str:
        """In words, such as ` of risk in us-east`."""
        tenant = "" if self.tenant is None else f" of {self.tenant}"
        workload = "" if self.workload is None else f" on {'/'.join(self.workload)}"
        return f"{tenant}{workload}{'' if self.region is None else f' in {self.region}'}"


@dataclass(frozen=True)
class Rows(Generic[R]):
    """The rows that were read, and the regions that did not answer with theirs."""

    rows: list[R]
    unreachable: UnreachableRegions = field(default_factory=dict[RegionId, str])
    # How many have ended and are left out.
    ended: int = 0
    # How many were read, of which the limit may have left some out.
    total: int = 0

    def __iter__(self) -> Iterator[R]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


# An attribute of the row, which its name heads; or a head of its own and what is below it.
Column = str | tuple[str, Callable[[Any], object]]


@dataclass(frozen=True)
class Resource(Generic[R]):
    """One row of the table of resources."""

    name: str
    singular: str
    # What a list of them is good for.
    sentence: str
    read: Callable[[Sources, Filters], Awaitable[Rows[R]]]
    # The first names the row.
    columns: tuple[Column, ...]
    # What to do where there are none; {workload} stands for the one that is asked for.
    remedy: str
    filters: tuple[str, ...] = ("limit",)
    # Fields that programs are not shown either.
    hidden: frozenset[str] = frozenset()
    short: str = ""
    # Everything that is known of one; without it, its row.
    show: Callable[[Sources, str], Awaitable[Value]] | None = None
    # Whether what is shown has ended; what never ends is followed until the caller stops.
    has_ended: Callable[[Any], bool] = lambda _: False
    unknown: RefusalCode = RefusalCode.INVALID
    # The whole sentence where there are none, if that is as it should be.
    empty: str = ""

    def when_empty(self, filters: Filters) -> str:
        workload = "/".join(filters.workload or ())
        remedy = self.remedy.format(workload=workload)
        return self.empty or f"There are no {self.name}{filters.scope} yet: {remedy}."

    def name_of(self, row: R) -> str:
        return str(value_in(row, self.columns[0]))

    def fields_of(self, row: R) -> dict[str, Any]:
        """The row as programs read it."""
        return row.model_dump(mode="json", exclude=set(self.hidden))


def head_of(column: Column) -> str:
    return column.replace("_", " ").capitalize() if isinstance(column, str) else column[0]


def value_in(row: Value, column: Column) -> object:
    return getattr(row, column) if isinstance(column, str) else column[1](row)
