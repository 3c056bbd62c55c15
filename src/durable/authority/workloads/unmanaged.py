"""What a request is answered about a workload that has no workflow to ask."""

from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.ledger import Answer, RequestLedger
from durable.authority.workloads.rows import find_workload, has_ended, never_admitted
from durable.model.ids import TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage


@global_transaction("durable_reader", "read what is known of {message.request_id}")
async def recall_unmanaged(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    message: OperatorMessage,
) -> Answer | None:
    """The answer it got before; None if a workflow has to be started for it.

    Refuses a request about a workload of which nothing is left to manage.
    """
    known = await find_workload(connection, tenant, workload)
    if known is None:
        raise never_admitted(tenant, workload)
    recorded = (await RequestLedger.read(connection, [message])).find(message)
    if recorded is None and known.deleted:
        raise has_ended(known)
    return None if recorded is None else recorded.answer_to(message)
