"""The history of a workload's generations: what each was, who wanted it, what became of it."""

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.model.ids import Generation, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.rollout import GenerationRecord
from durable.model.work.workload import AdmittedWorkload, WorkloadSpec
from durable.validation.text import shorten

GENERATIONS_KEPT = 20

_APPEND = text(f"""
    INSERT INTO global.generations
           (tenant, workload, generation, spec, actor, reason, admitted_at, outcome)
    SELECT tenant, workload, generation, spec, actor, reason, clock_timestamp(), 'progressing'
      FROM {
    sent_rows(
        "rows",
        "row",
        "tenant text, workload text, generation bigint, spec jsonb, actor text, reason text",
    )
}
""")

_LEAVE = text(f"""
    UPDATE global.generations AS g SET share = row.share
      FROM {sent_rows("rows", "row", "tenant text, workload text, generation bigint, share jsonb")}
     WHERE g.tenant = row.tenant AND g.workload = row.workload AND g.generation = row.generation
""")

# What the generation before it never came to, it will not come to any more.
_SUPERSEDE = text(f"""
    UPDATE global.generations AS g
       SET outcome = 'superseded', outcome_reason = 'by generation ' || row.generation
      FROM {sent_rows("rows", "row", "tenant text, workload text, generation bigint")}
     WHERE g.tenant = row.tenant AND g.workload = row.workload
       AND g.generation < row.generation AND g.outcome = 'progressing'
""")

_FORGET = text(f"""
    DELETE FROM global.generations AS g
     USING {sent_rows("rows", "row", "tenant text, workload text, generation bigint")}
     WHERE g.tenant = row.tenant AND g.workload = row.workload
       AND g.generation <= row.generation - :kept
       AND g.generation IS DISTINCT FROM (
               SELECT w.stable_generation FROM global.workloads AS w
                WHERE w.tenant = row.tenant AND w.workload = row.workload)
""")

_ROLL_BACK = text("""
    UPDATE global.generations SET outcome = 'rolled_back', outcome_reason = :reason
     WHERE tenant = :tenant AND workload = :workload AND generation = :generation
""")

_LIST = text("""
    SELECT generation, spec, share, actor, reason, admitted_at, outcome, outcome_reason,
           completed_at
      FROM global.generations
     WHERE tenant = :tenant AND workload = :workload
       AND (CAST(:generation AS bigint) IS NULL OR generation = :generation)
     ORDER BY generation
""")


async def append_generations(connection: AsyncConnection, rows: Iterable[dict[str, Any]]) -> None:
    """Begins generations, each with its spec, and forgets the oldest ones of their workloads."""
    sent = list(rows)
    if not sent:
        return
    await connection.execute(_APPEND, {"rows": json.dumps(sent)})
    later = json.dumps([row for row in sent if row["generation"] > 1])
    if later != "[]":
        await connection.execute(_SUPERSEDE, {"rows": later})
    many = json.dumps([row for row in sent if row["generation"] > GENERATIONS_KEPT])
    if many != "[]":
        await connection.execute(_FORGET, {"rows": many, "kept": GENERATIONS_KEPT})


async def keep_shares(connection: AsyncConnection, left: Iterable[AdmittedWorkload]) -> None:
    """Notes where the slots are of workloads that leave a good generation."""
    fields = {"tenant", "workload", "generation", "share"}
    rows = [
        one.model_dump(mode="json", include=fields)
        for one in left
        if one.generation == one.stable_generation
    ]
    if rows:
        await connection.execute(_LEAVE, {"rows": json.dumps(rows)})


async def record_rollback(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation,
    reason: str,
) -> None:
    """Records that a workload went back from this generation, and why."""
    key = {"tenant": tenant, "workload": workload, "generation": generation}
    await connection.execute(_ROLL_BACK, {**key, "reason": shorten(reason)})


async def stable_spec(
    connection: AsyncConnection, workload: AdmittedWorkload
) -> WorkloadSpec | None:
    """What slots run that a rollout has not come to yet, if that was good; None if none rolls."""
    found = await find_stable(connection, workload)
    return None if found is None else WorkloadSpec.read(found.spec)


async def find_stable(
    connection: AsyncConnection, workload: AdmittedWorkload
) -> GenerationRecord | None:
    """The good generation that a rollout comes from; None if none rolls."""
    stable = workload.stable_generation
    if workload.rollout is None or stable is None or stable == workload.generation:
        return None
    records = await find_generations(connection, workload.tenant, workload.workload, stable)
    return records[0] if records else None


@global_transaction("durable_reader", "read the last good generation of {workload.workload}")
async def read_stable_spec(
    connection: AsyncConnection, workload: AdmittedWorkload
) -> WorkloadSpec | None:
    """The same in a transaction of its own."""
    return await stable_spec(connection, workload)


@global_transaction("durable_reader", "read the generations of {tenant}/{workload}")
async def list_generations(
    connection: AsyncConnection, tenant: TenantId, workload: WorkloadName
) -> list[GenerationRecord]:
    """Those that are kept, the oldest first."""
    return await find_generations(connection, tenant, workload)


async def find_generations(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    generation: Generation | None = None,
) -> list[GenerationRecord]:
    """The same within a transaction of the caller's, or one of them."""
    of = {"tenant": tenant, "workload": workload, "generation": generation}
    rows = (await connection.execute(_LIST, of)).mappings()
    return [GenerationRecord.read(dict(row)) for row in rows]


def unknown_generation(
    tenant: TenantId, workload: WorkloadName, generation: int, known: Iterable[int]
) -> RefusedError:
    listed = ", ".join(map(str, known)) or "none"
    return RefusedError(
        RefusalCode.UNKNOWN_GENERATION,
        f"{tenant}/{workload} has no generation {generation} in its history, which keeps the last "
        f"{GENERATIONS_KEPT}; known: {listed}.",
    )
