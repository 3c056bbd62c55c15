"""Originals: replicas of a lost region that go on there until its work goes back.

A slot is kept while its workload says `on_reconnect: original`, wants it elsewhere for no other
reason than a recovery that has not ended, and its region has owned it all the time. Its claim is
then neither released nor asked to stop. Anything else, such as a new generation, a deletion or
work that stays where it was moved to, ends that, and the slot leaves like any other.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.authority.workloads.rows import RowKey
from durable.model.ids import RegionId
from durable.model.work.stand_ins import FIRST, served_slot

# The slot for which the one named `slot` serves: its own, or that of an original elsewhere.
SERVED_SLOT = f"CASE WHEN slot >= {FIRST} THEN slot - {FIRST} ELSE slot END"

# Of a workload `w` and a row `s` of `global.slots`. What an earlier loss moved is given back by the
# one that followed upon it, unless work had gone back, or was left where it was, in between.
IS_KEPT = """coalesce(
    w.spec -> 'run' ->> 'on_reconnect' = 'original'
    AND w.delete_requested_at IS NULL AND w.deleted_at IS NULL
    AND w.rollout IS NULL AND w.generation = w.stable_generation
    AND s.region IS NOT NULL AND s.slot < CAST(w.spec ->> 'replicas' AS integer)
    AND NOT s.is_leaving AND NOT coalesce(w.share -> s.region @> to_jsonb(s.slot), false)
    AND EXISTS (
        SELECT FROM global.recovery_moves AS m
          JOIN global.regions AS lost ON lost.region = m.region
          JOIN global.recoveries AS now ON now.region = lost.region AND now.epoch = lost.epoch
         WHERE m.region = s.region AND m.tenant = s.tenant AND m.workload = s.workload
           AND s.slot = ANY(m.slots) AND m.returned_at IS NULL
           AND now.phase IN ('confirmed', 'moving', 'holding', 'failing_back')
           AND NOT EXISTS (SELECT FROM global.recoveries AS past
                            WHERE past.region = m.region AND past.epoch >= m.epoch
                              AND past.phase IN ('failed_back', 'settled'))), false)"""

_KEPT = text(f"""
    SELECT s.tenant, s.workload, s.slot
      FROM global.slots AS s
      JOIN {sent_rows("keys", "key", "tenant text, workload text")} USING (tenant, workload)
      JOIN global.workloads AS w USING (tenant, workload)
     WHERE (CAST(:region AS text) IS NULL OR s.region = :region) AND {IS_KEPT}
""")


_STAND_INS = text(f"""
    SELECT s.tenant, s.workload, s.slot
      FROM global.slots AS s
      JOIN {sent_rows("keys", "key", "tenant text, workload text")} USING (tenant, workload)
     WHERE s.region IS NOT NULL AND s.slot >= {FIRST}
""")


@global_transaction("durable_reader", "read what {region} keeps")
async def read_kept(
    connection: AsyncConnection, region: RegionId, keys: Collection[RowKey]
) -> dict[RowKey, frozenset[int]]:
    """Of these workloads, the slots whose originals go on in the region."""
    return await find_kept(connection, keys, region)


async def find_kept(
    connection: AsyncConnection, keys: Collection[RowKey], region: RegionId | None = None
) -> dict[RowKey, frozenset[int]]:
    """The same in a transaction; without a region, those that any region keeps."""
    rows = await connection.execute(_KEPT, {"region": region, "keys": _named(keys)})
    return _by_workload(rows)


@global_transaction("durable_reader", "read which stand-ins there are")
async def read_stand_ins(
    connection: AsyncConnection, keys: Collection[RowKey]
) -> dict[RowKey, frozenset[int]]:
    """Of these workloads, the slots for which some region has a stand-in still."""
    return _by_workload(await connection.execute(_STAND_INS, {"keys": _named(keys)}))


def _named(keys: Collection[RowKey]) -> str:
    return json.dumps([{"tenant": tenant, "workload": workload} for tenant, workload in keys])


def _by_workload(rows: Iterable[Any]) -> dict[RowKey, frozenset[int]]:
    found: dict[RowKey, set[int]] = defaultdict(set)
    for row in rows:
        found[row.tenant, row.workload].add(served_slot(row.slot))
    return {key: frozenset(slots) for key, slots in found.items()}
