"""Slots after a restore: one owner each, under numbers above those of every copy.

Where the global side went back, regions that did not say what they hold; what they hold of a
workload that the restored rows do not know goes to nobody. Otherwise the global side says who owns
what. A copy under an older number, wherever it comes from, is void.
"""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import text

from durable.authority.db.batching import chunks
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.fleet.regions import lock_region
from durable.model.ids import RegionId

ROLE = "durable_restore"
MAX_PER_CALL = 10_000
# More hand-overs of one slot than were lost, and few enough for any copy to follow in one step.
NUMBERS_SKIPPED = 1_000

_COPIES = text("""
    SELECT tenant, workload, slot, number, region IS NOT NULL AS is_held FROM regional.slots
     WHERE region = :region OR region IS NULL ORDER BY tenant, workload, slot
""")
_SENT = sent_rows(
    "rows", "row", "tenant text, workload text, slot integer, number bigint, is_held boolean"
)
_TENANTS = text(f"""
    INSERT INTO global.tenants (tenant, created_at)
    SELECT DISTINCT tenant, clock_timestamp() FROM {_SENT} ON CONFLICT DO NOTHING
""")
# A slot that a region does not hold may be on its way to it, or may have left it since the copy:
# it is nobody's, and the next division of its workload assigns it.
_FOLLOW = text(f"""
    INSERT INTO global.slots AS s (tenant, workload, slot, region, number, transfer, since)
    SELECT tenant, workload, slot,
           CASE WHEN is_held AND w.workload IS NOT NULL THEN :region END,
           number + {NUMBERS_SKIPPED}, :transfer, clock_timestamp()
      FROM {_SENT}
      LEFT JOIN global.workloads AS w USING (tenant, workload)
     ORDER BY tenant, workload, slot
        ON CONFLICT (tenant, workload, slot) DO UPDATE
       SET region = CASE WHEN excluded.region IS NOT NULL OR s.region = :region
                         THEN excluded.region ELSE s.region END,
           number = greatest(s.number + {NUMBERS_SKIPPED}, excluded.number), transfer = :transfer,
           since = clock_timestamp(), is_leaving = false
     WHERE excluded.region IS NOT NULL OR s.region = :region
""")
_RENUMBER = text(f"""
    UPDATE global.slots SET number = number + {NUMBERS_SKIPPED}, is_leaving = false
     WHERE region = :region
""")
_OWNED = text("""
    SELECT tenant, workload, slot, number FROM global.slots WHERE region = :region
     ORDER BY tenant, workload, slot
""")
# Of a slot that another region of the same database still claims, the next division makes a copy.
_HOLD = text(f"""
    INSERT INTO regional.slots AS s (tenant, workload, slot, region, number)
    SELECT tenant, workload, slot, :region, number
      FROM {sent_rows("rows", "row", "tenant text, workload text, slot integer, number bigint")}
     ORDER BY tenant, workload, slot
        ON CONFLICT (tenant, workload, slot) DO UPDATE
       SET region = :region, number = excluded.number
     WHERE s.number < excluded.number
       AND NOT EXISTS (SELECT FROM regional.reservations AS r
                        WHERE r.tenant = s.tenant AND r.workload = s.workload
                          AND r.claimed_slot = s.slot AND r.region <> :region)
""")

Rows = Sequence[dict[str, Any]]


async def follow_copies(databases: Databases, region: RegionId, epoch: int) -> None:
    """Has a global side that went back own what the region's copies say."""
    for rows in chunks(await _read_copies(databases, region), lambda _: 1, most=MAX_PER_CALL):
        await _follow(databases, region, rows, epoch)


async def renumber(databases: Databases, region: RegionId) -> None:
    """Raises the numbers of all that the region owns, and hands it copies under them."""
    await _renumber(databases, region)
    owned = await _read_owned(databases, region)
    for rows in chunks(owned, lambda _: 1, most=MAX_PER_CALL):
        await _hold(databases, region, rows)


@regional_transaction("durable_reader", "read the slots of {region}")
async def _read_copies(connection: AsyncConnection, region: RegionId) -> list[dict[str, Any]]:
    return [dict(one) for one in (await connection.execute(_COPIES, {"region": region})).mappings()]


@global_transaction(ROLE, "follow the slots of {region}")
async def _follow(connection: AsyncConnection, region: RegionId, rows: Rows, epoch: int) -> None:
    sent = {"rows": json.dumps(rows)}
    await connection.execute(_TENANTS, sent)
    of = {**sent, "region": region, "transfer": f"restored/{epoch}"}
    await connection.execute(_FOLLOW, of)


@global_transaction(ROLE, "renumber the slots of {region}")
async def _renumber(connection: AsyncConnection, region: RegionId) -> None:
    await connection.execute(_RENUMBER, {"region": region})


@global_transaction("durable_reader", "read what {region} owns")
async def _read_owned(connection: AsyncConnection, region: RegionId) -> list[dict[str, Any]]:
    return [dict(one) for one in (await connection.execute(_OWNED, {"region": region})).mappings()]


@regional_transaction(ROLE, "hand {region} its slots")
async def _hold(connection: AsyncConnection, region: RegionId, rows: Rows) -> None:
    await lock_region(connection, region)
    await connection.execute(_HOLD, {"region": region, "rows": json.dumps(rows)})
