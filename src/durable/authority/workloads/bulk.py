"""The rows of many workloads at once: found, created, locked and written, always in one order."""

import json
from collections.abc import Iterable

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.workloads.rows import Admission, admission_of

WorkloadKey = tuple[str, str]

_FIND = text("""
    SELECT key.tenant, key.workload, w.workload IS NOT NULL AS has_row
      FROM jsonb_to_recordset(CAST(:keys AS jsonb)) AS key(tenant text, workload text)
      JOIN global.tenants AS t ON t.tenant = key.tenant
      LEFT JOIN global.workloads AS w ON w.tenant = key.tenant AND w.workload = key.workload
""")

# Whoever else creates one of these waits here, and then finds its row. It comes before any row is
# locked: who waits here holds no lock that the one waited for could want.
_CREATE = text("""
    INSERT INTO global.workloads (tenant, workload, generation, spec)
    SELECT tenant, workload, 1, '{}'
      FROM jsonb_to_recordset(CAST(:keys AS jsonb)) AS key(tenant text, workload text)
     ORDER BY tenant, workload
        ON CONFLICT DO NOTHING
    RETURNING tenant, workload
""")

_LOCK = text("""
    SELECT w.* FROM global.workloads AS w
      JOIN jsonb_to_recordset(CAST(:keys AS jsonb)) AS key(tenant text, workload text)
     USING (tenant, workload)
     ORDER BY tenant, workload FOR UPDATE OF w
""")

_WRITE = text("""
    UPDATE global.workloads AS w
       SET generation = row.generation, spec = row.spec, share = row.share,
           status = CASE WHEN w.deleted_at IS NULL THEN w.status ELSE '{}' END,
           delete_requested_at = NULL, deleted_at = NULL
      FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS row(
           tenant text, workload text, generation bigint, spec jsonb, share jsonb)
     WHERE w.tenant = row.tenant AND w.workload = row.workload
""")


async def find(
    connection: AsyncConnection, keys: Iterable[WorkloadKey]
) -> tuple[set[WorkloadKey], set[WorkloadKey]]:
    """Those that have a row, which they keep for ever, and those of known tenants without one."""
    found: dict[bool, set[WorkloadKey]] = {True: set(), False: set()}
    for row in await connection.execute(_FIND, {"keys": _json(keys)}):
        found[row.has_row].add((row.tenant, row.workload))
    return found[True], found[False]


async def create(connection: AsyncConnection, keys: Iterable[WorkloadKey]) -> set[WorkloadKey]:
    """Creates empty rows, to be written before the commit; answers those that nobody else made."""
    rows = await connection.execute(_CREATE, {"keys": _json(keys)})
    return {(row.tenant, row.workload) for row in rows}


async def lock(connection: AsyncConnection, keys: set[WorkloadKey]) -> dict[WorkloadKey, Admission]:
    """The workloads, locked; a row that was just created is locked by its creation."""
    if not keys:
        return {}
    rows = (await connection.execute(_LOCK, {"keys": _json(keys)})).mappings()
    return {(row["tenant"], row["workload"]): admission_of(row) for row in rows}


async def write(connection: AsyncConnection, admissions: Iterable[Admission]) -> None:
    kept = {"tenant", "workload", "generation", "spec", "share"}
    rows = [admission.model_dump(mode="json", include=kept) for admission in admissions]
    await connection.execute(_WRITE, {"rows": json.dumps(rows)})


def _json(keys: Iterable[WorkloadKey]) -> str:
    return json.dumps([{"tenant": tenant, "workload": name} for tenant, name in set(keys)])
