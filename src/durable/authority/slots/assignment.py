"""Unowned slots given to regions, for many workloads at once: the fact first, then the copies.

Sent again, it finds the fact and brings the copies that a crash may have kept back.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.connection import Databases, transact
from durable.authority.fleet.regions import lock_region
from durable.authority.quota.quotas import unknown_tenant
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal

ROLE = "durable_workload"

_TENANTS = text("SELECT tenant FROM global.tenants WHERE tenant = ANY(:tenants)")

# In one order, so that two batches with the same slots wait for each other and never in turns.
# A slot that somebody owns is locked and left as it is.
_ASSIGN = text("""
    INSERT INTO global.slots AS s (tenant, workload, slot, region, number, transfer, since)
    SELECT tenant, workload, slot, region, 1, transfer, clock_timestamp()
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, slot integer, region text, transfer text)
     ORDER BY tenant, workload, slot
        ON CONFLICT (tenant, workload, slot) DO UPDATE
       SET region = excluded.region, number = s.number + 1, transfer = excluded.transfer,
           since = clock_timestamp()
     WHERE s.region IS NULL
""")

_OWNERS = text("""
    SELECT tenant, workload, slot, region, number FROM global.slots
      JOIN jsonb_to_recordset(CAST(:keys AS jsonb)) AS key(tenant text, workload text)
     USING (tenant, workload)
     WHERE region IS NOT NULL ORDER BY tenant, workload, slot
""")

_ROWS = """
    INSERT INTO regional.slots AS s (tenant, workload, slot, region, number)
    SELECT tenant, workload, slot, :region, number
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, slot integer, number bigint)
     ORDER BY tenant, workload, slot
        ON CONFLICT (tenant, workload, slot)
"""

# Slots that no region has ever held: no commit can have read them, so none has to be waited for.
_COPY_NEW = text(f"{_ROWS} DO NOTHING RETURNING slot")

_COPY = text(f"""
    {_ROWS} DO UPDATE
       SET region = :region, number = excluded.number WHERE s.number < excluded.number
""")


@dataclass(frozen=True)
class Wish:
    """Which region shall own which slots of a workload, as far as nobody owns them."""

    tenant: TenantId
    workload: WorkloadName
    share: Mapping[RegionId, Sequence[int]]
    transfer: str

    @property
    def key(self) -> tuple[str, str]:
        return (str(self.tenant), str(self.workload))

    @property
    def size(self) -> int:
        return sum(map(len, self.share.values()))


@dataclass(frozen=True)
class Owner:
    """Who owns a slot, and the number under which it was handed over."""

    region: RegionId
    number: int


Owners = Mapping[int, Owner]


@dataclass(frozen=True)
class Copy:
    """Slots of a workload with the numbers under which a region owns them."""

    tenant: TenantId
    workload: WorkloadName
    numbers: Mapping[int, int]


async def assign_slots(databases: Databases, wishes: Sequence[Wish]) -> list[Owners | Refusal]:
    """Gives unowned slots to their regions; answers who owns what of each workload after it."""

    async def work(connection: AsyncConnection) -> list[Owners | Refusal]:
        return await assign_within(connection, wishes)

    return await transact(databases.at_global(ROLE), work, doing=f"assign {_of(wishes)}")


async def assign_within(
    connection: AsyncConnection, wishes: Sequence[Wish]
) -> list[Owners | Refusal]:
    """The same within a transaction that may still be rolled back."""
    asked = {"tenants": sorted({str(wish.tenant) for wish in wishes})}
    tenants = set((await connection.execute(_TENANTS, asked)).scalars())
    allowed = [wish for wish in wishes if wish.tenant in tenants]
    rows = _rows(allowed)
    if rows:
        await connection.execute(_ASSIGN, {"rows": json.dumps(rows)})
    keys = [{"tenant": tenant, "workload": name} for tenant, name in {w.key for w in allowed}]
    owners: dict[tuple[str, str], dict[int, Owner]] = {wish.key: {} for wish in allowed}
    for row in await connection.execute(_OWNERS, {"keys": json.dumps(keys)}):
        owners[row.tenant, row.workload][row.slot] = Owner(RegionId(row.region), row.number)
    return [
        owners[wish.key] if wish.tenant in tenants else unknown_tenant(wish.tenant).refusal
        for wish in wishes
    ]


async def copy_slots(databases: Databases, region: RegionId, copies: Sequence[Copy]) -> None:
    """Hands a region its copies; one that comes after the next hand-over changes nothing."""
    newest: dict[tuple[str, str, int], int] = {}
    for copy in copies:
        for slot, number in copy.numbers.items():
            key = (str(copy.tenant), str(copy.workload), slot)
            newest[key] = max(number, newest.get(key, 0))
    rows = [
        {"tenant": tenant, "workload": workload, "slot": slot, "number": number}
        for (tenant, workload, slot), number in newest.items()
    ]

    of = {"region": region, "rows": json.dumps(rows)}

    async def new(connection: AsyncConnection) -> None:
        if len((await connection.execute(_COPY_NEW, of)).all()) < len(rows):
            raise _SomeAreOldError  # with nothing done: who waits for the region holds no row

    async def old(connection: AsyncConnection) -> None:
        await lock_region(connection, region)
        await connection.execute(_COPY, of)

    engine, doing = databases.at_region(region, ROLE), f"hand slots to {region}"
    try:
        await transact(engine, new, doing=doing)
    except _SomeAreOldError:
        await transact(engine, old, doing=doing)


class _SomeAreOldError(Exception):
    """Some slots were held before, and have to wait for the region's commits."""


def _rows(wishes: Iterable[Wish]) -> list[dict[str, Any]]:
    """One row for each slot: of two wishes for one slot, the first has it."""
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for wish in wishes:
        of = {"tenant": str(wish.tenant), "workload": str(wish.workload)}
        for region, slots in wish.share.items():
            for slot in slots:
                row = {**of, "slot": slot, "region": str(region), "transfer": wish.transfer}
                rows.setdefault((*wish.key, slot), row)
    return list(rows.values())


def _of(wishes: Sequence[Wish]) -> str:
    names = ["/".join(wish.key) for wish in wishes[:3]] + (["..."] if len(wishes) > 3 else [])
    return f"slots of {', '.join(names)}"
