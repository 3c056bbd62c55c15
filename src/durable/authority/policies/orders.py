"""Orders about revisions: numbered under one lock, so that of two at once one is refused.

Each is taken once per request id, in one transaction with its audit. Everything that follows in
regions carries the number of its order, and an older number changes nothing there.
"""

from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.locks import POLICIES, hold_lock
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import authorize
from durable.authority.operators.ledger import RequestLedger
from durable.authority.overrides.freeze import refuse_while_frozen
from durable.authority.policies.loosening import refuse_unsigned_loosening
from durable.authority.policies.rows import (
    LISTED,
    find_rollout,
    last_order,
    rollout_of,
)
from durable.model.ids import PolicyRevision, RegionId
from durable.model.operators.rights import EVERYTHING, OperatorMessage, OrderAnswer, Verb
from durable.model.policy.rollout import (
    PolicyOrder,
    PolicyOrderKind,
    PolicyRollout,
    TakenOrder,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.planners.policy_rollout.orders import answer_to, apply_order
from durable.signals.names import policy_id

ROLE = "durable_policy"

_NUMBER = text("SELECT coalesce(max(number), 0) + 1 FROM global.policy_orders")

# A rollback may wait long for a region that does not answer, and no other one waits for it.
_UNDER_WAY = text("""
    SELECT * FROM global.policy_rollouts
     WHERE revision <> :revision
       AND (phase IN ('canary', 'widening') OR (:promotes AND phase = 'rolling_back'))
     ORDER BY number DESC LIMIT 1
""")

_FALLBACKS = text("""
    SELECT revision FROM global.policy_rollouts
     WHERE revision <> :revision AND in_force_at IS NOT NULL
       AND phase IN ('everywhere', 'superseded')
     ORDER BY in_force_at DESC LIMIT :most
""")

# Regions that would still go back to what is rolled back now go further back.
_REDIRECT = text("""
    UPDATE global.policy_rollouts SET to_revision = :to_revision
     WHERE phase = 'rolling_back' AND to_revision = :revision
""")

_TAKE = text("""
    INSERT INTO global.policy_orders
           (number, revision, kind, actor, reason, request, at)
    VALUES (:number, :revision, :kind, :actor, :reason, :request, clock_timestamp())
""")

_WRITE = text("""
    UPDATE global.policy_rollouts
       SET phase = :phase, number = :number, canary = :canary, bake = CAST(:bake AS jsonb),
           is_paused = :is_paused, to_revision = :to_revision, reroll = :reroll, actor = :actor,
           reason = :reason, changed_at = clock_timestamp()
     WHERE revision = :revision RETURNING *
""")

_ACTIONS = {
    PolicyOrderKind.PROMOTE: "promote policy",
    PolicyOrderKind.PAUSE: "pause policy",
    PolicyOrderKind.ROLLBACK: "roll back policy",
}


@global_transaction(ROLE, "{order.kind} policy {order.revision}")
async def take_order(
    connection: AsyncConnection,
    order: PolicyOrder,
    *,
    asked: OperatorMessage | None,
    default_canary: RegionId,
) -> OrderAnswer[PolicyRollout]:
    """The revision as the order leaves it; sent again, as it is by now.

    `asked` is the message behind it, whose actor must have the right; a guardrail has none.
    """
    await hold_lock(connection, POLICIES)
    message = asked or OperatorMessage.unsigned(
        policy_id(order.revision),
        order.kind,
        actor=order.actor,
        reason=order.reason,
        request_id=order.request,
    )
    ledger = await RequestLedger.read(connection, [message])
    again = ledger.repeat(message)
    if again is not None:
        return OrderAnswer(target=await find_rollout(connection, order.revision), sentence=again)
    operator = None
    if asked is not None:
        operator = await authorize(connection, asked, Verb.POLICY, EVERYTHING)
    before = await find_rollout(connection, order.revision)
    await _refuse_beside_another(connection, order)
    last = await last_order(connection, order.revision)
    fallbacks = await _fallbacks(connection, order)
    after = apply_order(before, order, last, default_canary, fallbacks)
    if asked is not None and operator is not None:
        await refuse_unsigned_loosening(connection, operator, asked, order.kind, after)
    if order.kind is PolicyOrderKind.PROMOTE:
        await refuse_while_frozen(connection, after.canary)
    if order.kind is PolicyOrderKind.ROLLBACK and after.to_revision is not None:
        await connection.execute(_REDIRECT, after.model_dump(include={"revision", "to_revision"}))
    number = (await connection.execute(_NUMBER)).scalar_one()
    await connection.execute(
        _TAKE,
        {
            "number": number,
            "revision": order.revision,
            "kind": order.kind.value,
            "actor": order.actor,
            "reason": order.reason,
            "request": order.request,
        },
    )
    named = {"number": number, "actor": order.actor, "reason": order.reason}
    written = await write_rollout(connection, after.model_copy(update=named))
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=order.actor,
        action=_ACTIONS[order.kind],
        target=policy_id(order.revision),
        before={"phase": before.phase, "paused": before.is_paused, "order": before.number},
        after={
            "phase": written.phase,
            "paused": written.is_paused,
            "order": number,
            "reason": order.reason,
            "request": order.request,
            **_payload(order),
            **({} if written.to_revision is None else {"to_revision": written.to_revision}),
        },
    )
    answer = answer_to(order, written)
    ledger.record(message, {"answer": answer})
    await ledger.write(connection)
    return OrderAnswer(target=written, sentence=answer)


async def write_rollout(connection: AsyncConnection, rollout: PolicyRollout) -> PolicyRollout:
    values = rollout.model_dump(mode="json", exclude={"changed_at", "bake"})
    bake = None if rollout.bake is None else rollout.bake.model_dump_json()
    row = (await connection.execute(_WRITE, {**values, "bake": bake})).mappings().one()
    return rollout_of(row)


def _payload(order: PolicyOrder) -> dict[str, Any]:
    asked = {"canary", "to_revision", "reroll"}
    return order.model_dump(mode="json", include=asked, exclude_defaults=True)


async def _refuse_beside_another(connection: AsyncConnection, order: PolicyOrder) -> None:
    """One revision at a time is on its way, or it could not be said which one did the harm."""
    promotes = order.kind is PolicyOrderKind.PROMOTE
    of = {"revision": order.revision, "promotes": promotes}
    rows = await connection.execute(_UNDER_WAY, of)
    row = rows.mappings().one_or_none()
    if row is None:
        return
    other = rollout_of(row)
    who = await last_order(connection, other.revision)
    raise RefusedError(
        RefusalCode.POLICY_UNDER_WAY,
        f"Revision {other.revision} is on its way ({other.phase}): {_said(who, other)}; wait until "
        "it has ended, or roll it back first.",
    )


def _said(order: TakenOrder | None, rollout: PolicyRollout) -> str:
    return str(order) if order is not None else f"{rollout.actor} published it"


async def _fallbacks(connection: AsyncConnection, order: PolicyOrder) -> list[PolicyRevision]:
    """The others that were in force everywhere and were not rolled back, the latest first."""
    if order.to_revision is not None:
        await find_rollout(connection, order.to_revision)
    found = await connection.execute(_FALLBACKS, {"revision": order.revision, "most": LISTED})
    return list(found.scalars())
