"""The rows of workloads: read one or list them; find, create, lock and write many at once.

Many rows are always locked in one order, so that two batches with the same workloads wait for each
other and never deadlock.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import TextClause, text

from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.pages import ROWS_PER_PAGE, read_pages
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload
from durable.validation.text import show_moment

ROLE = "durable_workload"

RowKey = tuple[str, str]
_COLUMNS = (
    "tenant", "workload", "generation", "generations", "stable_generation", "rollout", "revision",
    "spec", "share", "admitted_at", "deadline_missed_at", "incident",
)  # fmt: skip

_READ = text("SELECT * FROM global.workloads WHERE tenant = :tenant AND workload = :workload")

_LIST_LIVE = text("""
    SELECT * FROM global.workloads
     WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant) AND deleted_at IS NULL
       AND (tenant, workload) > (:after_tenant, :after_workload)
     ORDER BY tenant, workload LIMIT :most
""")

# A job that ended is listed for as long as it asked to be.
_ENDED = """
      FROM global.workloads
     WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant) AND deleted_at IS NOT NULL
       AND (listed_until IS NULL
            OR listed_until > coalesce(CAST(:now AS timestamptz), statement_timestamp()))
"""
_LIST_ENDED = text(f"""
    SELECT * {_ENDED} AND (tenant, workload) > (:after_tenant, :after_workload)
     ORDER BY tenant, workload LIMIT :most
""")
_COUNT_ENDED = text(f"SELECT count(*) {_ENDED}")

_LIVE = text("""
    SELECT tenant, workload FROM global.workloads WHERE deleted_at IS NULL
     ORDER BY tenant, workload
""")

_LOCK = text("""
    SELECT * FROM global.workloads WHERE tenant = :tenant AND workload = :workload FOR UPDATE
""")

_FIND_MANY = text(f"""
    SELECT key.tenant, key.workload, w.workload IS NOT NULL AS has_row
      FROM {sent_rows("keys", "key", "tenant text, workload text")}
      JOIN global.tenants AS t ON t.tenant = key.tenant
      LEFT JOIN global.workloads AS w ON w.tenant = key.tenant AND w.workload = key.workload
""")

# Its slots are assigned with it, so its first generation counts as divided from the beginning.
# Whoever else creates one of these waits here and then finds its row. This comes before any row is
# locked: whoever waits here holds no lock that the one it waits for could want.
_CREATE_MANY = text("""
    INSERT INTO global.workloads (tenant, workload, generation, spec, observed_generation)
    SELECT tenant, workload, 1, '{}', 1
      FROM jsonb_to_recordset(CAST(:keys AS jsonb)) AS key(tenant text, workload text)
     ORDER BY tenant, workload
        ON CONFLICT DO NOTHING
    RETURNING tenant, workload
""")

_READ_MANY = f"""
    SELECT w.* FROM global.workloads AS w
      JOIN {sent_rows("keys", "key", "tenant text, workload text")}
     USING (tenant, workload)
     ORDER BY tenant, workload"""
_LOCK_MANY = text(f"{_READ_MANY} FOR UPDATE OF w")

_WRITTEN = sent_rows(
    "rows",
    "row",
    "tenant text, workload text, generation bigint, generations bigint, stable_generation bigint,"
    " rollout jsonb, revision bigint, spec jsonb, share jsonb, admitted_at timestamptz,"
    " deadline_missed_at timestamptz",
)

_WRITE_MANY = text(f"""
    UPDATE global.workloads AS w
       SET generation = row.generation, generations = row.generations,
           stable_generation = row.stable_generation, rollout = nullif(row.rollout, 'null'),
           revision = row.revision, spec = row.spec, share = row.share,
           status = CASE WHEN w.deleted_at IS NULL THEN w.status ELSE '{{}}' END,
           delete_requested_at = NULL, deleted_at = NULL, listed_until = NULL,
           admitted_at = row.admitted_at, deadline_missed_at = row.deadline_missed_at,
           incident = CASE WHEN w.deleted_at IS NULL THEN w.incident END
      FROM {_WRITTEN}
     WHERE w.tenant = row.tenant AND w.workload = row.workload
""")


@global_transaction("durable_reader", "read workload {tenant}/{workload}")
async def read_workload(
    connection: AsyncConnection, tenant: TenantId, workload: WorkloadName
) -> AdmittedWorkload | None:
    """The workload as it was last admitted, tombstones too; None if there never was one."""
    return await find_workload(connection, tenant, workload)


async def find_workload(
    connection: AsyncConnection, tenant: TenantId, workload: WorkloadName
) -> AdmittedWorkload | None:
    found = await connection.execute(_READ, {"tenant": tenant, "workload": workload})
    row = found.mappings().one_or_none()
    return None if row is None else workload_of(row)


async def list_workloads(
    databases: Databases,
    tenant: TenantId | None = None,
    *,
    deleted: bool = False,
    now: datetime | None = None,
) -> list[AdmittedWorkload]:
    """Every live workload, or those of one tenant; with `deleted`, tombstones instead."""
    return await read_pages(
        lambda after: _list_page(databases, tenant, after, deleted=deleted, now=now),
        ("", ""),
        lambda one: (str(one.tenant), str(one.workload)),
    )


@global_transaction("durable_reader", "read the workloads")
async def _list_page(
    connection: AsyncConnection,
    tenant: TenantId | None,
    after: RowKey,
    *,
    deleted: bool,
    now: datetime | None,
) -> list[AdmittedWorkload]:
    of = {"tenant": tenant, "after_tenant": after[0], "after_workload": after[1]}
    of |= {"most": ROWS_PER_PAGE}
    if not deleted:
        rows = await connection.execute(_LIST_LIVE, of)
    else:
        rows = await connection.execute(_LIST_ENDED, {**of, "now": now})
    return [workload_of(row) for row in rows.mappings()]


@global_transaction("durable_reader", "count what has ended")
async def count_ended(connection: AsyncConnection, tenant: TenantId | None = None) -> int:
    """How many tombstones are listed."""
    of = {"tenant": tenant, "now": None}
    return (await connection.execute(_COUNT_ENDED, of)).scalar_one()


@global_transaction("durable_reader", "read which workloads are live")
async def live_workloads(connection: AsyncConnection) -> list[tuple[TenantId, WorkloadName]]:
    """Every workload that is not over."""
    return [
        (TenantId(row.tenant), WorkloadName(row.workload))
        for row in await connection.execute(_LIVE)
    ]


async def lock_workload(
    connection: AsyncConnection, tenant: TenantId, workload: WorkloadName
) -> AdmittedWorkload | None:
    """The workload, locked: every other request about it waits for the commit."""
    found = await connection.execute(_LOCK, {"tenant": tenant, "workload": workload})
    row = found.mappings().one_or_none()
    return None if row is None else workload_of(row)


async def find_workloads(
    connection: AsyncConnection, keys: Iterable[RowKey]
) -> tuple[set[RowKey], set[RowKey]]:
    """Those that have a row, which they keep for ever, and those of known tenants without one."""
    found: dict[bool, set[RowKey]] = {True: set(), False: set()}
    for row in await connection.execute(_FIND_MANY, {"keys": _json(keys)}):
        found[row.has_row].add((row.tenant, row.workload))
    return found[True], found[False]


async def create_workloads(connection: AsyncConnection, keys: set[RowKey]) -> set[RowKey]:
    """Creates empty rows, to be written before the commit; answers those that were missing."""
    if not keys:
        return set()
    rows = await connection.execute(_CREATE_MANY, {"keys": _json(keys)})
    return {(row.tenant, row.workload) for row in rows}


@global_transaction("durable_reader", "read workloads")
async def read_workloads(
    connection: AsyncConnection, keys: set[RowKey]
) -> dict[RowKey, AdmittedWorkload]:
    """Those that there ever were, tombstones too."""
    return await _select(connection, text(_READ_MANY), keys)


async def lock_workloads(
    connection: AsyncConnection, keys: set[RowKey]
) -> dict[RowKey, AdmittedWorkload]:
    """The workloads, locked; a row that was just created is locked by its creation."""
    return await _select(connection, _LOCK_MANY, keys)


async def _select(
    connection: AsyncConnection, statement: TextClause, keys: set[RowKey]
) -> dict[RowKey, AdmittedWorkload]:
    if not keys:
        return {}
    rows = (await connection.execute(statement, {"keys": _json(keys)})).mappings()
    return {(row["tenant"], row["workload"]): workload_of(row) for row in rows}


async def write_workloads(
    connection: AsyncConnection, workloads: Iterable[AdmittedWorkload]
) -> None:
    rows = [workload.model_dump(mode="json", include=set(_COLUMNS)) for workload in workloads]
    await connection.execute(_WRITE_MANY, {"rows": json.dumps(rows)})


def never_admitted(tenant: TenantId, workload: WorkloadName) -> RefusedError:
    return RefusedError(
        RefusalCode.UNKNOWN_WORKLOAD,
        f"There is no workload {tenant}/{workload}; see `durable get workloads`.",
    )


def has_ended(workload: AdmittedWorkload) -> RefusedError:
    assert workload.deleted_at is not None, "the caller has looked"
    return RefusedError(
        RefusalCode.UNKNOWN_WORKLOAD,
        f"{workload.tenant}/{workload.workload} has ended already, at "
        f"{show_moment(workload.deleted_at)}; see `durable get workloads --all`.",
    )


def workload_of(row: Any) -> AdmittedWorkload:
    plain = {name: row[name] for name in _COLUMNS}
    deleting = row["delete_requested_at"] is not None and row["deleted_at"] is None
    ends = {"deleting": deleting, "deleted_at": row["deleted_at"]}
    return AdmittedWorkload.read({**plain, **ends, **row["status"]})


def _json(keys: Iterable[RowKey]) -> str:
    return json.dumps([{"tenant": tenant, "workload": name} for tenant, name in set(keys)])
