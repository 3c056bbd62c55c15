"""What must be true of several databases together: slots, claims and grants, compared across them.

They are not read at one moment, so what seems to be wrong is read again: what changes hands
meanwhile is another slot or amount the next time. A fenced region takes nothing new, and what it
still has of others is void by its number until it is opened, so it is not compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from sqlalchemy import text

from durable.authority.db.connection import READER, Databases, transact
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.everywhere import ask_databases
from durable.authority.db.transaction import global_transaction

ONE_CLAIM = "S1: a slot has at most one active claim, in all databases together"
ONE_OWNER = "S1: no region of another database owns a slot against the global side"
WITHIN_BOOKS = "S3: no region of another database holds more grant than it was given"
ACROSS = (ONE_CLAIM, ONE_OWNER, WITHIN_BOOKS)

READS = 3
MAX_SHOWN = 20

_SLOTS = text("""
    SELECT s.region, s.tenant, s.workload, s.slot,
           EXISTS (SELECT FROM regional.reservations AS r
                    WHERE r.tenant = s.tenant AND r.workload = s.workload
                      AND r.claimed_slot = s.slot AND r.region = s.region) AS is_claimed
      FROM regional.slots AS s JOIN regional.regions AS g USING (region)
     WHERE g.state <> 'fenced'
""")
_GRANTS = text("""
    SELECT region, tenant, granted_cpu_millis AS cpu, granted_memory_mib AS memory,
           granted_gpus AS gpus
      FROM regional.grants JOIN regional.regions AS g USING (region) WHERE g.state <> 'fenced'
""")
_OWNERS = text("SELECT tenant, workload, slot, region FROM global.slots WHERE region IS NOT NULL")
_BOOKS = text("""
    SELECT region, tenant, granted_cpu_millis AS cpu, granted_memory_mib AS memory,
           granted_gpus AS gpus FROM global.grants
""")
_FENCED = text("SELECT region FROM global.regions WHERE state = 'fenced'")

Slot = tuple[str, str, int]
Amounts = tuple[int, int, int]


@dataclass(frozen=True)
class _Region:
    """What the regions of one database say."""

    slots: Sequence[tuple[Slot, str, bool]]
    grants: Mapping[tuple[str, str], Amounts]


@dataclass(frozen=True)
class _Books:
    """What the global side says."""

    owners: Mapping[Slot, str]
    grants: Mapping[tuple[str, str], Amounts]
    fenced: frozenset[str]


async def compare_databases(databases: Databases) -> list[tuple[str, str]]:
    """Invariants that do not hold, each with what shows it; regions that do not answer say none."""
    found: set[tuple[str, str]] | None = None
    for _ in range(READS):
        now = await _compare_once(databases)
        found = now if found is None else found & now
        if not found:
            return []
    return sorted(found or ())[:MAX_SHOWN]


async def _compare_once(databases: Databases) -> set[tuple[str, str]]:
    async def read(url: str) -> _Region:
        engine = databases.at(url, READER)
        return await transact(engine, _read_region, doing="read slots and grants to compare")

    answers, _ = await ask_databases(databases, read)
    return compare(answers, await _read_books(databases))


def compare(regions: Sequence[_Region], books: _Books) -> set[tuple[str, str]]:
    """Pure: what contradicts what."""
    wrong: set[tuple[str, str]] = set()
    claimed: dict[Slot, str] = {}
    for slot, region, is_claimed in chain.from_iterable(one.slots for one in regions):
        name = f"{slot[0]}/{slot[1]} slot {slot[2]}"
        if region in books.fenced:
            continue
        if is_claimed and claimed.setdefault(slot, region) != region:
            both = " and ".join(sorted((claimed[slot], region)))
            wrong.add((ONE_CLAIM, f"({name} is claimed in {both})"))
        owner = books.owners.get(slot)
        if owner != region:
            wrong.add((ONE_OWNER, f"({name} is held by {region}, and owned by {owner})"))
    for (region, tenant), has in chain.from_iterable(one.grants.items() for one in regions):
        given = books.grants.get((region, tenant), (0, 0, 0))
        if region not in books.fenced and any(a > b for a, b in zip(has, given, strict=True)):
            wrong.add((WITHIN_BOOKS, f"({tenant} has {has} in {region}, and was given {given})"))
    return wrong


async def _read_region(connection: AsyncConnection) -> _Region:
    slots = [
        ((row.tenant, row.workload, row.slot), row.region, row.is_claimed)
        for row in await connection.execute(_SLOTS)
    ]
    return _Region(slots, await _read_grants(connection, regional=True))


async def _read_grants(
    connection: AsyncConnection, *, regional: bool
) -> Mapping[tuple[str, str], Amounts]:
    rows = await connection.execute(_GRANTS if regional else _BOOKS)
    return {(row.region, row.tenant): (row.cpu, row.memory, row.gpus) for row in rows}


@global_transaction(READER, "read the books to compare")
async def _read_books(connection: AsyncConnection) -> _Books:
    owners = {
        (row.tenant, row.workload, row.slot): row.region
        for row in await connection.execute(_OWNERS)
    }
    fenced = frozenset((await connection.execute(_FENCED)).scalars())
    return _Books(owners, await _read_grants(connection, regional=False), fenced)
