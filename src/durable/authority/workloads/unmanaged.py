"""What a request is answered about a workload that has no workflow to ask."""

from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.db.transaction import global_transaction
from durable.authority.workloads.ledger import Answer, RequestIdentity, RequestLedger
from durable.authority.workloads.rows import find_workload, has_ended, never_admitted


@global_transaction("durable_reader", "read what is known of {request}")
async def recall_unmanaged(connection: AsyncConnection, request: RequestIdentity) -> Answer | None:
    """The answer it got before; None if a workflow has to be started for it.

    Refuses a request about a workload of which nothing is left to manage.
    """
    found = await find_workload(connection, request.tenant, request.workload)
    if found is None:
        raise never_admitted(request.tenant, request.workload)
    answer = (await RequestLedger.read(connection, [request])).find(request)
    if answer is None and found.deleted:
        raise has_ended(found)
    return answer
