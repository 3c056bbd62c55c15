"""What must hold whatever a test did: the shared invariants, and what spans several databases."""

from sqlalchemy import text

from durable.authority.db.connection import Databases
from durable.authority.reads.invariants import violations

OWNED = text("SELECT tenant, workload, slot, region FROM regional.slots WHERE region IS NOT NULL")
OWNERS = text("SELECT tenant, workload, slot, region FROM global.slots WHERE region IS NOT NULL")
GRANTED = text("""
    SELECT region, tenant, granted_cpu_millis, granted_memory_mib, granted_gpus
      FROM regional.grants
""")
BOOKS = text("""
    SELECT region, tenant, granted_cpu_millis, granted_memory_mib, granted_gpus FROM global.grants
""")

Slot = tuple[str, str, int]


async def assert_promises_hold(databases: Databases) -> None:
    for url in databases.urls:
        async with databases.at(url, "durable_reader").begin() as connection:
            assert await violations(connection) == []
    await assert_one_owner_per_slot(databases)
    await assert_no_region_holds_more_than_the_books(databases)


async def copies_of(databases: Databases) -> list[tuple[Slot, str]]:
    """Which region believes to own which slot, in all databases together."""
    found: list[tuple[Slot, str]] = []
    for url in databases.urls:
        async with databases.at(url, "durable_reader").begin() as connection:
            rows = await connection.execute(OWNED)
            found += [((row.tenant, row.workload, row.slot), row.region) for row in rows]
    return found


async def assert_one_owner_per_slot(databases: Databases) -> None:
    async with databases.at_global("durable_reader").begin() as connection:
        rows = await connection.execute(OWNERS)
        owners = {(row.tenant, row.workload, row.slot): row.region for row in rows}
    copies = await copies_of(databases)
    assert len({slot for slot, _ in copies}) == len(copies), copies
    strangers = [(slot, region) for slot, region in copies if owners.get(slot) != region]
    assert strangers == [], f"the global side says {owners}"


async def assert_no_region_holds_more_than_the_books(databases: Databases) -> None:
    async with databases.at_global("durable_reader").begin() as connection:
        books = {row[:2]: row[2:] for row in await connection.execute(BOOKS)}
    for url in databases.urls:
        async with databases.at(url, "durable_reader").begin() as connection:
            for row in await connection.execute(GRANTED):
                given = books.get(row[:2], (0, 0, 0))
                assert all(held <= most for held, most in zip(row[2:], given, strict=True)), row
