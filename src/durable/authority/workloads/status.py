"""What a workload's workflow says of it, kept for those who ask without asking the workflow."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.connection import Databases, transact
from durable.authority.workloads.rows import ROLE
from durable.model.ids import TenantId, WorkloadName
from durable.model.workload import Condition

# What is older than what was told already, or of a workload that is gone, is not told any more.
_WRITE = text("""
    UPDATE global.workloads
       SET status = CAST(:status AS jsonb), observed_generation = :observed_generation
     WHERE tenant = :tenant AND workload = :workload AND deleted_at IS NULL
       AND :observed_generation BETWEEN observed_generation AND generation
       AND (status, observed_generation)
           IS DISTINCT FROM (CAST(:status AS jsonb), CAST(:observed_generation AS bigint))
""")


async def write_status(
    databases: Databases,
    tenant: TenantId,
    workload: WorkloadName,
    *,
    conditions: Sequence[Condition],
    replicas_by_state: Mapping[str, int],
    observed_generation: Annotated[int, Field(ge=0)],
) -> bool:
    """Keeps the status of a workload; answers whether anything differed."""
    told = {
        "tenant": tenant,
        "workload": workload,
        "status": json.dumps(status_of(conditions, replicas_by_state)),
        "observed_generation": observed_generation,
    }

    async def work(connection: AsyncConnection) -> bool:
        return (await connection.execute(_WRITE, told)).rowcount == 1

    engine = databases.at_global(ROLE)
    return await transact(engine, work, doing=f"tell the status of {tenant}/{workload}")


def status_of(
    conditions: Sequence[Condition], replicas_by_state: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "conditions": [condition.model_dump(mode="json") for condition in conditions],
        "replicas_by_state": dict(replicas_by_state),
    }
