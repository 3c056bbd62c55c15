"""The end of a workload: requested, held until no region owns a slot of it, then a tombstone."""

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import text

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import authorize
from durable.authority.operators.ledger import KEPT_DAYS, RequestLedger
from durable.authority.workloads.events import audit_workload
from durable.authority.workloads.rows import (
    ROLE,
    has_ended,
    lock_workload,
    never_admitted,
    workload_of,
)
from durable.model.ids import ActorId, Generation, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage, OrderAnswer, Scope, Verb
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload, Condition

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
           rollout = NULL, stable_generation = NULL,
           deleted_at = clock_timestamp(),
           listed_until = clock_timestamp() + CAST(:ttl AS interval),
           status = coalesce(CAST(:status AS jsonb), status), observed_generation = generation
     WHERE tenant = :tenant AND workload = :workload
    RETURNING *
""")

_OWNED = text("""
    SELECT region, count(*) AS slots FROM global.slots
     WHERE tenant = :tenant AND workload = :workload AND region IS NOT NULL
     GROUP BY region ORDER BY region LIMIT 1
""")


@global_transaction(ROLE, "delete workload {tenant}/{workload}")
async def request_delete(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    message: OperatorMessage,
) -> OrderAnswer[AdmittedWorkload]:
    """Requests the end of a workload, once per request id, in whichever life of it that was."""
    before = await _lock(connection, tenant, workload)
    ledger = await RequestLedger.read(connection, [message])
    again = ledger.repeat(message)
    if again is not None:
        return OrderAnswer(target=before, sentence=again)
    await authorize(connection, message, Verb.DELETE, Scope(tenant=tenant))
    if before.deleted:
        raise has_ended(before)
    answer, after = "It is being deleted already.", before
    if not before.deleting:
        answer = "Deleting: every placement is asked to stop and release its slots."
        of = {"tenant": tenant, "workload": workload, "finalizer": FINALIZER}
        after = workload_of((await connection.execute(_REQUEST, of)).mappings().one())
        said = {"reason": message.reason, "request": message.request_id}
        detail = {"generation": before.generation, **said}
        await audit_workload(connection, after, "delete workload", message.actor, detail)
    ledger.record(message, {"answer": answer})
    await ledger.write(connection, kept_days=KEPT_DAYS)
    return OrderAnswer(target=after, sentence=answer)


@global_transaction(ROLE, "finish deleting workload {tenant}/{workload}")
async def finish_delete(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    generation: Generation,
    actor: ActorId,
) -> AdmittedWorkload:
    """Turns a deleted workload into a tombstone once no region owns a slot of it; idempotent."""
    before = await _lock(connection, tenant, workload)
    if before.deleted or before.generation > generation:
        return before
    if not before.deleting:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"There is no request to delete workload {tenant}/{workload}; request that first.",
        )
    return await _bury(connection, before, None, "finish deleting workload", actor)


@global_transaction(ROLE, "finish job {tenant}/{workload}")
async def finish_job(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    generation: Generation,
    conditions: Sequence[Condition],
    replicas_by_state: Mapping[str, int],
    actor: ActorId,
) -> AdmittedWorkload:
    """Keeps how a job ended once no region owns a slot of it; applied again, it runs again."""
    status = json.dumps(
        {
            "conditions": [condition.model_dump(mode="json") for condition in conditions],
            "replicas_by_state": dict(replicas_by_state),
        }
    )
    before = await _lock(connection, tenant, workload)
    if before.deleted or before.generation > generation:
        return before
    return await _bury(connection, before, status, "finish job", actor)


async def _lock(
    connection: AsyncConnection, tenant: TenantId, workload: WorkloadName
) -> AdmittedWorkload:
    locked = await lock_workload(connection, tenant, workload)
    if locked is None:
        raise never_admitted(tenant, workload)
    return locked


async def _bury(
    connection: AsyncConnection,
    before: AdmittedWorkload,
    status: str | None,
    action: str,
    actor: ActorId,
) -> AdmittedWorkload:
    of = {"tenant": before.tenant, "workload": before.workload}
    owned = (await connection.execute(_OWNED, of)).one_or_none()
    if owned is not None:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{owned.region} still owns {owned.slots} slots of {before.tenant}/{before.workload}; "
            "release what runs there and give them up first.",
        )
    # Only a job that ended by itself asks to be forgotten.
    job = before.spec.job if status is not None else None
    ttl = None if job is None else job.ttl_after_finished
    ended = {**of, "finalizer": FINALIZER, "status": status, "ttl": ttl}
    after = workload_of((await connection.execute(_FINISH, ended)).mappings().one())
    await audit_workload(connection, after, action, actor, {"generation": after.generation})
    return after
