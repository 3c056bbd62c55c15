"""Claims that are to be replaced: marked in their region, where the next plan finds them."""

import json
from collections.abc import Sequence

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.operators.authorization import authorize
from durable.authority.operators.ledger import KEPT_DAYS, Answer, RequestLedger
from durable.authority.reads.claims import ClaimFilter
from durable.authority.slots.assignment import ROLE
from durable.authority.slots.marks import Cause, CauseKind, mark_claims
from durable.authority.workloads.rows import has_ended, lock_workload, never_admitted
from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.operators.rights import OperatorMessage, Scope, Verb


@global_transaction(ROLE, "request to replace slots of {tenant}/{workload}")
async def request_replacement(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    message: OperatorMessage,
    answer: Answer,
) -> Answer:
    """Records which claims are to be replaced, once per request id, before any is marked."""
    before = await lock_workload(connection, tenant, workload)
    if before is None:
        raise never_admitted(tenant, workload)
    ledger = await RequestLedger.read(connection, [message])
    recorded = ledger.recall(message)
    if recorded is not None:
        return recorded
    await authorize(connection, message, Verb.REPLACE, Scope(tenant=tenant))
    if before.deleted:
        raise has_ended(before)
    said = {"reason": message.reason, "request": message.request_id}
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=message.actor,
        action="replace slots",
        target=message.workflow_id,
        after={**json.loads(json.dumps(answer)), **said},
    )
    ledger.record(message, answer)
    await ledger.write(connection, kept_days=KEPT_DAYS)
    return answer


@regional_transaction(ROLE, "mark claims in {region} to be replaced")
async def mark_replaced(
    connection: AsyncConnection,
    region: RegionId,
    tokens: Sequence[int],
    *,
    request: str,
    actor: ActorId,
    reason: str,
) -> None:
    """Marks claims that live; a second time changes nothing."""
    cause = Cause(CauseKind.REQUEST, request)
    which = ClaimFilter(tokens=tokens)
    await mark_claims(connection, region, which, cause, actor=actor, reason=reason)
