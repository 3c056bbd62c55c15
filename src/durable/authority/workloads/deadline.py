"""A deadline that a job has missed: recorded once, with an event in the audit."""

from datetime import datetime

from sqlalchemy import text

from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.workloads.events import audit_workload
from durable.authority.workloads.rows import ROLE, lock_workload, never_admitted
from durable.model.ids import ActorId, Generation, TenantId, WorkloadName

_MISS = text("""
    UPDATE global.workloads SET deadline_missed_at = :at
     WHERE tenant = :tenant AND workload = :workload
""")


@global_transaction(ROLE, "record a missed deadline of {tenant}/{workload}")
async def miss_deadline(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    generation: Generation,
    completed: int,
    actor: ActorId,
    now: datetime | None = None,
) -> datetime | None:
    """When it was first recorded that this generation missed its deadline; None if it has not.

    That it is not done by now is the caller's to know, from the regions.
    """
    found = await lock_workload(connection, tenant, workload)
    if found is None:
        raise never_admitted(tenant, workload)
    if found.generation != generation or found.deadline_missed_at is not None:
        return found.deadline_missed_at if found.generation == generation else None
    at = await read_clock(connection, now)
    if found.deleted or found.deadline is None or at < found.deadline:
        return None
    await connection.execute(_MISS, {"tenant": tenant, "workload": workload, "at": at})
    after = {
        "generation": generation,
        "deadline": found.deadline.isoformat(),
        "completed": completed,
        "wanted": found.spec.replicas,
    }
    await audit_workload(connection, found, "miss deadline", actor, after)
    return at
