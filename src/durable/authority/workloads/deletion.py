"""The end of a workload: asked for, held until no region owns a slot of it, then a tombstone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.connection import Databases, transact
from durable.authority.workloads.answers import Asked
from durable.authority.workloads.rows import ROLE, Admission, admission_of, lock_workload
from durable.model.ids import ActorId, Generation, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import Condition

# Holds a workload's row until every binding is released and every slot given up.
FINALIZER = "durable/bindings"

_REQUEST = text("""
    UPDATE global.workloads
       SET delete_requested_at = clock_timestamp(),
           finalizers = CASE WHEN :finalizer = ANY(finalizers) THEN finalizers
                             ELSE finalizers || CAST(:finalizer AS text) END
     WHERE tenant = :tenant AND workload = :workload
    RETURNING *
""")

_FINISH = text("""
    UPDATE global.workloads
       SET finalizers = array_remove(finalizers, :finalizer), share = '{}',
           deleted_at = clock_timestamp(),
           status = coalesce(CAST(:status AS jsonb), status), observed_generation = generation
     WHERE tenant = :tenant AND workload = :workload
    RETURNING *
""")

_OWNED = text("""
    SELECT region, count(*) AS slots FROM global.slots
     WHERE tenant = :tenant AND workload = :workload AND region IS NOT NULL
     GROUP BY region ORDER BY region LIMIT 1
""")


async def request_delete(
    databases: Databases,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    request: str,
    actor: ActorId,
    reason: str,
) -> Admission:
    """Asks for the end of a workload, once per request id; asking what is asked changes nothing."""
    of = {"tenant": tenant, "workload": workload}
    asked = Asked(tenant, workload, request, {"delete": of}, actor)

    async def work(connection: AsyncConnection) -> Admission:
        row = await _locked(connection, tenant, workload)
        answered = await asked.recall(connection)
        if answered is not None:
            return answered
        before = admission_of(row)
        if before.deleting or before.deleted:
            return await asked.record(connection, before)
        marked = await connection.execute(_REQUEST, {**of, "finalizer": FINALIZER})
        after = admission_of(marked.mappings().one())
        detail = {"generation": before.generation, "reason": reason}
        await _tell(connection, after, "delete workload", actor, detail)
        return await asked.record(connection, after)

    engine = databases.at_global(ROLE)
    return await transact(engine, work, doing=f"delete workload {tenant}/{workload}")


async def finish_delete(
    databases: Databases,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    generation: Generation,
    actor: ActorId,
) -> Admission:
    """Lets a deleted workload go once no region owns a slot of it; again changes nothing."""

    async def work(connection: AsyncConnection) -> Admission:
        row = await _locked(connection, tenant, workload)
        before = admission_of(row)
        if before.deleted or before.generation > generation:
            return before
        if not before.deleting:
            raise RefusedError(
                RefusalCode.WRONG_STATE,
                f"Nobody asked to delete workload {tenant}/{workload}; ask for it first.",
            )
        return await _bury(connection, before, None, "finish deleting workload", actor)

    engine = databases.at_global(ROLE)
    return await transact(engine, work, doing=f"finish deleting workload {tenant}/{workload}")


async def finish_job(
    databases: Databases,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    generation: Generation,
    conditions: Sequence[Condition],
    replicas_by_state: Mapping[str, int],
    actor: ActorId,
) -> Admission:
    """Keeps how a job ended once no region owns a slot of it; applied again, it runs again."""
    status = json.dumps(
        {
            "conditions": [condition.model_dump(mode="json") for condition in conditions],
            "replicas_by_state": dict(replicas_by_state),
        }
    )

    async def work(connection: AsyncConnection) -> Admission:
        before = admission_of(await _locked(connection, tenant, workload))
        if before.deleted or before.generation > generation:
            return before
        return await _bury(connection, before, status, "finish job", actor)

    engine = databases.at_global(ROLE)
    return await transact(engine, work, doing=f"finish job {tenant}/{workload}")


async def _locked(connection: AsyncConnection, tenant: TenantId, workload: WorkloadName) -> Any:
    row = await lock_workload(connection, tenant, workload)
    if row is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_WORKLOAD,
            f"There is no workload {tenant}/{workload}; see `durable get workloads`.",
        )
    return row


async def _bury(
    connection: AsyncConnection, before: Admission, status: str | None, action: str, actor: ActorId
) -> Admission:
    of = {"tenant": before.tenant, "workload": before.workload}
    owned = (await connection.execute(_OWNED, of)).one_or_none()
    if owned is not None:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{owned.region} still owns {owned.slots} slots of {before.tenant}/{before.workload}; "
            "release what runs there and give them up first.",
        )
    ended = {**of, "finalizer": FINALIZER, "status": status}
    after = admission_of((await connection.execute(_FINISH, ended)).mappings().one())
    await _tell(connection, after, action, actor, {"generation": after.generation})
    return after


async def _tell(
    connection: AsyncConnection,
    admission: Admission,
    action: str,
    actor: ActorId,
    detail: dict[str, Any],
) -> None:
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action=action,
        target=f"workload/{admission.tenant}/{admission.workload}",
        after=detail,
    )
