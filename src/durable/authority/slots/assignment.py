"""Assigns unowned slots to regions, for many workloads at once: the fact first, then the copies.

Sent again, it finds the fact and delivers the copies that a crash may have held back.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import lock_region
from durable.authority.quota.quotas import unknown_tenant
from durable.model.ids import Generation, RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload

ROLE = "durable_workload"
MAX_SLOTS_PER_CALL = 20_000
# Of a slot that no region has owned before.
FIRST_NUMBER = 1

# In one order, and before any slot: a division of a workload holds its row until it commits.
_LOCK_REVISIONS = text(f"""
    SELECT w.tenant, w.workload, w.revision FROM global.workloads AS w
      JOIN {sent_rows("keys", "key", "tenant text, workload text")}
     USING (tenant, workload)
     ORDER BY tenant, workload FOR NO KEY UPDATE OF w
""")

_DIVISIONS = sent_rows(
    "rows", "row", "tenant text, workload text, revision bigint, generation bigint"
)

# A generation is observed once its slots are divided.
_ADVANCE = text(f"""
    UPDATE global.workloads AS w
       SET revision = row.revision,
           observed_generation = least(w.generations, row.generation)
      FROM {_DIVISIONS}
     WHERE w.tenant = row.tenant AND w.workload = row.workload
       AND (w.revision, w.observed_generation) IS DISTINCT FROM (row.revision, row.generation)
""")

_TENANTS = text("SELECT tenant FROM global.tenants WHERE tenant = ANY(:tenants)")

# In one order, so that two batches with the same slots wait for each other and never deadlock.
# A slot that has an owner is locked and left as it is; one that was about to leave and is to stay
# gets a new number, which a step that would still take it away does not know.
_ASSIGN = text(f"""
    INSERT INTO global.slots AS s (tenant, workload, slot, region, number, transfer, since)
    SELECT tenant, workload, slot, region, {FIRST_NUMBER}, transfer, clock_timestamp()
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, slot integer, region text, transfer text)
     ORDER BY tenant, workload, slot
        ON CONFLICT (tenant, workload, slot) DO UPDATE
       SET region = excluded.region, number = s.number + 1, transfer = excluded.transfer,
           since = clock_timestamp(), is_leaving = false
     WHERE s.region IS NULL OR (s.region = excluded.region AND s.is_leaving)
    RETURNING tenant, workload, number
""")

_OWNERS = text(f"""
    SELECT tenant, workload, slot, region, number FROM global.slots
      JOIN {sent_rows("keys", "key", "tenant text, workload text")}
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

# Slots that no region has ever held: no commit can have read them, so there is none to wait for.
_COPY_NEW = text(f"{_ROWS} DO NOTHING RETURNING slot")

_HELD = text("""
    SELECT s.tenant, s.workload FROM regional.slots AS s
      JOIN jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, slot integer, number bigint)
     USING (tenant, workload, slot, number)
     WHERE s.region = :region
""")

_COPY = text(f"""
    {_ROWS} DO UPDATE
       SET region = :region, number = excluded.number WHERE s.number < excluded.number
""")


@dataclass(frozen=True)
class Division:
    """Which division of a workload's slots a change belongs to, and of which generation."""

    revision: int
    generation: Generation

    @classmethod
    def of(cls, workload: AdmittedWorkload) -> Self:
        return cls(workload.revision, workload.generation)


@dataclass(frozen=True)
class SlotAssignment:
    """Which region is to own which slots of a workload, as far as they have no owner yet."""

    tenant: TenantId
    workload: WorkloadName
    share: Mapping[RegionId, Sequence[int]]
    transfer: str
    division: Division

    @property
    def key(self) -> tuple[str, str]:
        return (str(self.tenant), str(self.workload))

    @property
    def size(self) -> int:
        return sum(map(len, self.share.values()))


@dataclass(frozen=True)
class SlotOwner:
    """The region that owns a slot, and the number under which it was handed over."""

    region: RegionId
    number: int


SlotOwners = Mapping[int, SlotOwner]


@dataclass(frozen=True)
class SlotCopies:
    """Slots of a workload with the numbers under which a region owns them."""

    tenant: TenantId
    workload: WorkloadName
    numbers: Mapping[int, int]


async def assign_slots(
    databases: Databases, assignments: Sequence[SlotAssignment]
) -> list[SlotOwners | Refusal]:
    """Gives unowned slots to their regions; answers who then owns what of each workload."""
    return await _assign(databases, assignments, _describe(assignments))


@global_transaction(ROLE, "assign {what}")
async def _assign(
    connection: AsyncConnection, assignments: Sequence[SlotAssignment], what: str
) -> list[SlotOwners | Refusal]:
    return await assign_within(connection, assignments)


async def assign_within(
    connection: AsyncConnection, assignments: Sequence[SlotAssignment]
) -> list[SlotOwners | Refusal]:
    """The same within a transaction that may still be rolled back."""
    newest = await _lock_revisions(connection, assignments)
    refusals = await _refuse_unknown(connection, assignments, newest)
    refusals |= await _refuse_old(connection, assignments, newest)
    allowed = [one for place, one in enumerate(assignments) if place not in refusals]
    rows = _rows(allowed)
    if rows:
        await connection.execute(_ASSIGN, {"rows": json.dumps(rows)})
    keys = [_named(key) for key in {one.key for one in allowed}]
    owners: dict[tuple[str, str], dict[int, SlotOwner]] = {one.key: {} for one in allowed}
    for row in await connection.execute(_OWNERS, {"keys": json.dumps(keys)}):
        owners[row.tenant, row.workload][row.slot] = SlotOwner(RegionId(row.region), row.number)
    return [refusals.get(place) or owners[one.key] for place, one in enumerate(assignments)]


async def assign_new(
    connection: AsyncConnection, workloads: Iterable[AdmittedWorkload]
) -> set[tuple[str, str]]:
    """Gives the slots of workloads that were just created to their regions, with their admission.

    Answers those of which no region has ever owned a slot: what their regions own has number 1.
    """
    assignments = [
        SlotAssignment(one.tenant, one.workload, one.share, transfer_of(one), Division.of(one))
        for one in workloads
    ]
    rows = json.dumps(_rows(assignments))
    new: Counter[tuple[str, str]] = Counter()
    for row in await connection.execute(_ASSIGN, {"rows": rows}):
        new[row.tenant, row.workload] += row.number == FIRST_NUMBER
    return {one.key for one in assignments if new[one.key] == one.size}


def transfer_of(workload: AdmittedWorkload) -> str:
    """Names the division that hands slots over."""
    return f"workload/{workload.tenant}/{workload.workload}/r{workload.revision}"


async def _lock_revisions(
    connection: AsyncConnection, assignments: Sequence[SlotAssignment]
) -> dict[tuple[str, str], int]:
    keys = json.dumps([_named(key) for key in {one.key for one in assignments}])
    rows = await connection.execute(_LOCK_REVISIONS, {"keys": keys})
    return {(row.tenant, row.workload): row.revision for row in rows}


async def _refuse_unknown(
    connection: AsyncConnection,
    assignments: Sequence[SlotAssignment],
    newest: Mapping[tuple[str, str], int],
) -> dict[int, Refusal]:
    """Refuses, by its place, each of a tenant that does not exist; one with a workload does."""
    unsure = {place: one.tenant for place, one in enumerate(assignments) if one.key not in newest}
    if not unsure:
        return {}
    named = {"tenants": sorted(map(str, set(unsure.values())))}
    tenants = set((await connection.execute(_TENANTS, named)).scalars())
    return {
        place: unknown_tenant(tenant).refusal
        for place, tenant in unsure.items()
        if tenant not in tenants
    }


async def _refuse_old(
    connection: AsyncConnection,
    assignments: Sequence[SlotAssignment],
    newest: dict[tuple[str, str], int],
) -> dict[int, Refusal]:
    """Refuses, by its place, each that is older than another division of its workload.

    Slots of a workload that was never admitted have nothing to be compared with.
    """
    divisions = [(one.key, one.division) for one in assignments if one.key in newest]
    for key, division in divisions:
        newest[key] = max(newest[key], division.revision)
    advanced = {key: asdict(one) for key, one in divisions if one.revision == newest[key]}
    if advanced:
        rows = [{**_named(key), **division} for key, division in advanced.items()]
        await connection.execute(_ADVANCE, {"rows": json.dumps(rows)})
    return {
        place: _old_division(one.key, one.division, newest[one.key])
        for place, one in enumerate(assignments)
        if one.division.revision < newest.get(one.key, 0)
    }


async def refuse_old_division(
    connection: AsyncConnection, key: tuple[str, str], division: Division
) -> None:
    """Locks the workload; refuses when it was divided by a newer revision."""
    keys = json.dumps([_named(key)])
    row = (await connection.execute(_LOCK_REVISIONS, {"keys": keys})).one_or_none()
    if row is not None and division.revision < row.revision:
        refusal = _old_division(key, division, row.revision)
        raise RefusedError(refusal.code, refusal.sentence)


def _old_division(key: tuple[str, str], division: Division, newer: int) -> Refusal:
    return Refusal(
        code=RefusalCode.OLD_DIVISION,
        sentence=f"The slots of {'/'.join(key)} were divided by revision {newer} since revision "
        f"{division.revision}; nothing changed. Read the workload again.",
    )


def _named(key: tuple[str, str]) -> dict[str, str]:
    return {"tenant": key[0], "workload": key[1]}


async def copy_slots(databases: Databases, region: RegionId, copies: Sequence[SlotCopies]) -> None:
    """Hands a region its copies; a copy that arrives after the next hand-over changes nothing."""
    try:
        await _copy_new(databases, region, copies)
    except _HeldBeforeError:
        await _copy(databases, region, copies)


@regional_transaction(ROLE, "hand slots to {region}")
async def _copy_new(
    connection: AsyncConnection, region: RegionId, copies: Sequence[SlotCopies]
) -> None:
    if await copy_new_slots(connection, region, copies) < len(_copy_rows(copies)):
        raise _HeldBeforeError  # rolled back: no row is held while it waits for the region


async def copy_new_slots(
    connection: AsyncConnection, region: RegionId, copies: Sequence[SlotCopies]
) -> int:
    """Hands over slots that no region of this database ever held; answers how many that were.

    It waits for no commit, because none can have read them.
    """
    rows = json.dumps(_copy_rows(copies))
    return len((await connection.execute(_COPY_NEW, {"region": region, "rows": rows})).all())


async def find_held(
    connection: AsyncConnection, region: RegionId, copies: Sequence[SlotCopies]
) -> set[tuple[str, str]]:
    """The workloads of which the region holds every one of these slots under its number."""
    rows = json.dumps(_copy_rows(copies))
    held: Counter[tuple[str, str]] = Counter()
    for row in await connection.execute(_HELD, {"region": region, "rows": rows}):
        held[row.tenant, row.workload] += 1
    wanted = {(str(one.tenant), str(one.workload)): len(one.numbers) for one in copies}
    return {key for key, count in wanted.items() if held[key] == count}


@regional_transaction(ROLE, "hand slots to {region}")
async def _copy(
    connection: AsyncConnection, region: RegionId, copies: Sequence[SlotCopies]
) -> None:
    await lock_region(connection, region)
    rows = json.dumps(_copy_rows(copies))
    await connection.execute(_COPY, {"region": region, "rows": rows})


def _copy_rows(copies: Iterable[SlotCopies]) -> list[dict[str, object]]:
    """One row for each slot, with its newest number."""
    newest: dict[tuple[str, str, int], int] = {}
    for copy in copies:
        for slot, number in copy.numbers.items():
            key = (str(copy.tenant), str(copy.workload), slot)
            newest[key] = max(number, newest.get(key, 0))
    return [
        {"tenant": tenant, "workload": workload, "slot": slot, "number": number}
        for (tenant, workload, slot), number in newest.items()
    ]


class _HeldBeforeError(Exception):
    """A region held some of the slots before, so the copies must wait for its commits."""


def _rows(assignments: Iterable[SlotAssignment]) -> list[dict[str, Any]]:
    """One row for each slot: of two assignments of one slot, the first counts."""
    rows: dict[tuple[str, str, int], dict[str, Any]] = {}
    for one in assignments:
        of = {"tenant": str(one.tenant), "workload": str(one.workload)}
        for region, slots in one.share.items():
            for slot in slots:
                row = {**of, "slot": slot, "region": str(region), "transfer": one.transfer}
                rows.setdefault((*one.key, slot), row)
    return list(rows.values())


def _describe(assignments: Sequence[SlotAssignment]) -> str:
    names = ["/".join(one.key) for one in assignments[:3]]
    return f"slots of {', '.join(names)}{', ...' if len(assignments) > 3 else ''}"
