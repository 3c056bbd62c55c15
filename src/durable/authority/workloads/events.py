"""What happens to a workload, as an event of the global audit."""

from collections.abc import Mapping
from typing import Any

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.model.ids import ActorId
from durable.model.work.workload import AdmittedWorkload


async def audit_workload(
    connection: AsyncConnection,
    workload: AdmittedWorkload,
    action: str,
    actor: ActorId,
    after: Mapping[str, Any],
    *,
    before: Mapping[str, Any] | None = None,
) -> None:
    """Appends the event in the caller's transaction."""
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action=action,
        target=f"workload/{workload.tenant}/{workload.workload}",
        before=None if before is None else dict(before),
        after=dict(after),
    )
