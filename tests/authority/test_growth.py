"""What recurs costs the same however long the past: no statement of it reads what is over."""

import asyncio

import psycopg
import pytest
from bench import _recurring
from bench._past import add_past

from durable.authority.db.connection import Databases
from durable.model.ids import WorkloadName
from tests.authority.touched import Touched, touching
from tests.conftest import Copies

# So many past claims; in all tables together ten times as many rows.
PAST = 40_000
# What was sent often enough is planned for any parameters instead of those at hand.
LIVES = 12
# A tree grows a level deeper; a scan would read tens to hundreds of times as much.
MORE_BLOCKS = 2.0
GROWS = (
    "regional.reservations", "regional.bindings", "regional.observations", "regional.intents",
    "regional.transitions", "regional.decisions", "regional.requests", "regional.shares",
    "regional.slots",
    "regional.grant_changes", "regional.node_history", "global.slots", "global.workloads",
    "global.operator_requests", "global.grant_transfers", "audit.events",
)  # fmt: skip

# A change of the parent's key, or its end, looks for children by these columns.
_UNINDEXED = """
    SELECT c.conname FROM pg_constraint AS c
      JOIN pg_namespace AS n ON n.oid = c.connamespace
     WHERE c.contype = 'f' AND n.nspname IN ('global', 'regional', 'audit')
       AND NOT EXISTS (
           SELECT FROM pg_index AS i
            WHERE i.indrelid = c.conrelid AND i.indkey[0] = ANY(c.conkey)
              AND (i.indpred IS NULL
                   OR pg_get_expr(i.indpred, i.indrelid) LIKE '%IS NOT NULL%'))
     ORDER BY 1
"""
# Quotas are lowered to nothing, and never renamed or deleted.
_NEVER_LOOKED_FOR = ["grant_transfers_tenant_reference"]


@pytest.fixture(scope="module")
def present(copies: Copies, template: str) -> str:
    """An authority with one living workload and no past."""
    name = copies.make(template)

    async def build() -> None:
        async with Databases(copies.url(name)) as databases:
            await _recurring.build(databases)

    asyncio.run(build())
    return name


async def touched_by_lives(copies: Copies, template: str, *, past: int) -> Touched:
    with copies.lend(template) as url:
        if past:
            of = (_recurring.REGION, _recurring.TENANT, _recurring.LIVING)
            add_past(url, past, region=of[0], tenant=of[1], living=of[2])
        async with touching(url) as touched, Databases(url) as databases:
            lives = _recurring.Lives(databases)
            for number in range(LIVES):
                await lives.whole(WorkloadName(f"life-{number}"))
    return touched


async def test_nothing_that_recurs_reads_what_is_over(copies: Copies, present: str) -> None:
    young = await touched_by_lives(copies, present, past=0)
    old = await touched_by_lives(copies, present, past=PAST)
    scanned = {table: old.rows_scanned[table] for table in GROWS if old.rows_scanned[table]}
    assert scanned == {}
    more = {
        table: (young.blocks[table], old.blocks[table])
        for table in GROWS
        if old.blocks[table] > MORE_BLOCKS * young.blocks[table] + 100
    }
    assert more == {}


def test_every_reference_has_an_index_to_be_checked_by(copies: Copies, template: str) -> None:
    with psycopg.connect(copies.url(copies.make(template))) as connection:
        names = [name for (name,) in connection.execute(_UNINDEXED).fetchall()]
    assert names == _NEVER_LOOKED_FOR
