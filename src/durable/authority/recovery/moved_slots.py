"""Copies of slots that moved away while their region could not be asked: void by their numbers.

A region that was fenced without its database has its old rows when it is back. What the global
side gave to others meanwhile is taken out of them before the region takes part again.
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

MAX_PER_CALL = 10_000

_COPIES = text("""
    SELECT tenant, workload, slot, number FROM regional.slots
     WHERE region = :region ORDER BY tenant, workload, slot
""")

_SENT = sent_rows("rows", "row", "tenant text, workload text, slot integer")

_OWNED_ELSEWHERE = text(f"""
    SELECT tenant, workload, slot, s.number FROM global.slots AS s
      JOIN {_SENT} USING (tenant, workload, slot)
     WHERE s.region IS DISTINCT FROM :region
""")

_VOID = text(f"""
    UPDATE regional.slots AS s SET region = NULL, number = row.number
      FROM {sent_rows("rows", "row", "tenant text, workload text, slot integer, number bigint")}
     WHERE s.region = :region AND s.tenant = row.tenant AND s.workload = row.workload
       AND s.slot = row.slot AND s.number <= row.number
       AND NOT EXISTS (SELECT FROM regional.reservations AS r
                        WHERE r.tenant = s.tenant AND r.workload = s.workload
                          AND r.claimed_slot = s.slot AND r.region = s.region)
""")


async def void_moved(databases: Databases, region: RegionId) -> int:
    """Takes back the copies of slots that others own; answers how many are still claimed here."""
    left = 0
    copies = await _read_copies(databases, region)
    for some in chunks(copies, lambda _: 1, most=MAX_PER_CALL):
        moved = await _read_owned_elsewhere(databases, region, some)
        if moved:
            left += len(moved) - await _void(databases, region, moved)
    return left


@regional_transaction("durable_reader", "read the slots of {region}")
async def _read_copies(connection: AsyncConnection, region: RegionId) -> list[dict[str, Any]]:
    rows = (await connection.execute(_COPIES, {"region": region})).mappings()
    return [dict(row) for row in rows]


@global_transaction("durable_reader", "read which slots of {region} have moved")
async def _read_owned_elsewhere(
    connection: AsyncConnection, region: RegionId, copies: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    sent = {"region": region, "rows": json.dumps(copies)}
    return [dict(row) for row in (await connection.execute(_OWNED_ELSEWHERE, sent)).mappings()]


@regional_transaction("durable_workload", "take slots from {region}")
async def _void(
    connection: AsyncConnection, region: RegionId, moved: Sequence[dict[str, Any]]
) -> int:
    await lock_region(connection, region)
    sent = {"region": region, "rows": json.dumps(moved)}
    return (await connection.execute(_VOID, sent)).rowcount
