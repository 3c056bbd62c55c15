"""Claims that are to be replaced: marked in their region, where the next plan finds them."""

import json
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from durable.authority.audit import chain as audit
from durable.authority.db.transaction import global_transaction, regional_transaction
from durable.authority.operators.authorization import authorize
from durable.authority.reads.claims import ClaimFilter
from durable.authority.slots.assignment import ROLE
from durable.authority.slots.marks import Cause, CauseKind, mark_claims
from durable.authority.workloads.ledger import Answer, RequestIdentity, RequestLedger
from durable.authority.workloads.rows import has_ended, lock_workload, never_admitted
from durable.model.ids import ActorId, RegionId
from durable.model.operators.rights import OperatorMessage, Scope, Verb
from durable.signals.names import workload_id


@global_transaction(ROLE, "request to replace slots of {identity.tenant}/{identity.workload}")
async def request_replacement(
    connection: AsyncConnection,
    identity: RequestIdentity,
    answer: Answer,
    *,
    reason: str,
) -> Answer:
    """Records which claims are to be replaced, once per request id, before any is marked."""
    before = await lock_workload(connection, identity.tenant, identity.workload)
    if before is None:
        raise never_admitted(identity.tenant, identity.workload)
    ledger = await RequestLedger.read(connection, [identity])
    recorded = ledger.recall(identity)
    if recorded is not None:
        return recorded
    asked = identity.signed or OperatorMessage.unsigned(
        workload_id(identity.tenant, identity.workload),
        identity.kind,
        actor=identity.actor,
        reason=reason,
        request_id=identity.request,
    )
    await authorize(connection, asked, Verb.REPLACE, Scope(tenant=identity.tenant))
    if before.deleted:
        raise has_ended(before)
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=identity.actor,
        action="replace slots",
        target=f"workload/{identity.tenant}/{identity.workload}",
        after={**json.loads(json.dumps(answer)), "reason": reason, "request": identity.request},
    )
    ledger.record(identity, answer)
    await ledger.write(connection)
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
