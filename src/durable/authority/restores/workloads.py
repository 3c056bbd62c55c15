"""Workloads after the global side went back: what the restored rows want, under new numbers.

What a region runs and the rows do not know was lost: it gets a row that is being deleted, so that
its workflow stops it and gives up its slots. A generation that only a region knows is never used
again; where what the rows want was left for it, they want that as a new generation.
"""

import json
from typing import Any

from sqlalchemy import text

from durable.authority.db.batching import chunks
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.workloads.deletion import FINALIZER
from durable.model.ids import ActorId, RegionId

ROLE = "durable_restore"
MAX_PER_CALL = 500

_SHARES = text("""
    SELECT tenant, workload, max(generation) AS newest,
           bool_or(closed_at IS NULL) AS is_open,
           coalesce(array_agg(generation) FILTER (WHERE closed_at IS NOT NULL), '{}') AS closed,
           (array_agg(spec ORDER BY generation DESC))[1] AS spec
      FROM regional.shares WHERE region = :region
     GROUP BY tenant, workload ORDER BY tenant, workload
""")
_SENT = sent_rows(
    "rows",
    "row",
    "tenant text, workload text, newest bigint, is_open boolean, closed bigint[], spec jsonb",
)
_TENANTS = text(f"""
    INSERT INTO global.tenants (tenant, created_at)
    SELECT DISTINCT tenant, clock_timestamp() FROM {_SENT} ON CONFLICT DO NOTHING
""")
_ADOPT = text(f"""
    INSERT INTO global.workloads
           (tenant, workload, generation, generations, spec, finalizers, delete_requested_at,
            deleted_at)
    SELECT tenant, workload, newest, newest, spec,
           CASE WHEN is_open THEN ARRAY[CAST(:finalizer AS text)] ELSE '{{}}' END,
           clock_timestamp(), CASE WHEN NOT is_open THEN clock_timestamp() END
      FROM {_SENT} ORDER BY tenant, workload
        ON CONFLICT DO NOTHING
 RETURNING tenant, workload, deleted_at IS NULL AS is_open
""")
# A job that is done in a region stays done there: it is not wanted again.
_NEW_GENERATION = text(f"""
    UPDATE global.workloads AS w
       SET generations = greatest(w.generations, row.newest) + 1,
           generation = greatest(w.generations, row.newest) + 1,
           stable_generation = NULL, rollout = NULL
      FROM {_SENT}
     WHERE w.tenant = row.tenant AND w.workload = row.workload AND w.deleted_at IS NULL
       AND (w.generation = ANY(row.closed) AND w.spec ->> 'kind' IS DISTINCT FROM 'job'
            OR row.newest > w.generations)
 RETURNING w.tenant, w.workload, w.generation, w.spec
""")
_GENERATION = text("""
    INSERT INTO global.generations
           (tenant, workload, generation, spec, actor, reason, admitted_at, outcome)
    VALUES (:tenant, :workload, :generation, CAST(:spec AS jsonb), :actor,
            'wanted again after a restore', clock_timestamp(), 'progressing')
        ON CONFLICT DO NOTHING
""")


async def adopt_lost(databases: Databases, region: RegionId, actor: ActorId) -> list[str]:
    """Answers, by name, the workloads that the restored rows do not know; again is harmless."""
    lost: list[str] = []
    shares = await _read_shares(databases, region)
    for rows in chunks(shares, lambda _: 1, most=MAX_PER_CALL):
        lost += await _adopt(databases, region, rows, actor)
    return lost


@regional_transaction("durable_reader", "read the shares of {region}")
async def _read_shares(connection: AsyncConnection, region: RegionId) -> list[dict[str, Any]]:
    return [dict(one) for one in (await connection.execute(_SHARES, {"region": region})).mappings()]


@global_transaction(ROLE, "read which workloads of {region} were lost")
async def _adopt(
    connection: AsyncConnection, region: RegionId, rows: list[dict[str, Any]], actor: ActorId
) -> list[str]:
    sent = {"rows": json.dumps(rows)}
    await connection.execute(_TENANTS, sent)
    adopted = (await connection.execute(_ADOPT, {**sent, "finalizer": FINALIZER})).all()
    for row in (await connection.execute(_NEW_GENERATION, sent)).mappings().all():
        begun = {**row, "spec": json.dumps(row["spec"]), "actor": actor}
        await connection.execute(_GENERATION, begun)
    return [f"{row.tenant}/{row.workload}" for row in adopted if row.is_open]
