"""Adding and removing operators, granting and revoking rights, setting keys; each is audited.

There is always an operator who may manage operators: the last one can be neither removed nor lose
that right, and in a database without any, the user who migrates it becomes the first.
"""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.locks import OPERATORS, hold_lock
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import NotAllowedError, require_right
from durable.authority.operators.refusals import audits_refusals
from durable.authority.operators.rows import ANY_VERB, find_operators
from durable.model.ids import ActorId, TenantId
from durable.model.operators.rights import EVERYTHING, Operator, OperatorKind, Right, Verb, covers
from durable.model.refusal import RefusalCode, RefusedError

ROLE = "durable_operators"

_ADD = text("""
    INSERT INTO global.operators (operator, kind, created_by, created_at)
    VALUES (:operator, :kind, :actor, clock_timestamp())
        ON CONFLICT (operator) DO UPDATE
       SET kind = excluded.kind, public_key = NULL, removed_at = NULL
""")

_REMOVE = text("""
    UPDATE global.operators SET removed_at = clock_timestamp(), public_key = NULL
     WHERE operator = :operator
""")

_SET_KEY = text("UPDATE global.operators SET public_key = :key WHERE operator = :operator")

_KEY_OF_ANOTHER = text("""
    SELECT operator FROM global.operators WHERE public_key = :key AND operator <> :operator
""")

_GRANT = text("""
    INSERT INTO global.operator_rights (operator, verb, tenant, region, granted_by, granted_at)
    VALUES (:operator, :verb, :tenant, :region, :actor, clock_timestamp())
        ON CONFLICT DO NOTHING
""")

_REVOKE = text("""
    DELETE FROM global.operator_rights
     WHERE operator = :operator AND verb = :verb AND tenant = :tenant AND region = :region
""")

_TENANTS = text("SELECT tenant FROM global.tenants")

_REVOKE_ALL = text("DELETE FROM global.operator_rights WHERE operator = :operator")


@global_transaction("durable_reader", "list the operators")
async def list_operators(connection: AsyncConnection, *, removed: bool = False) -> list[Operator]:
    """All who may ask for changes, and if wanted those who were removed."""
    found = await find_operators(connection)
    return [one for one in found.values() if removed or one.removed_at is None]


@global_transaction("durable_reader", "read operator {operator}")
async def read_operator(connection: AsyncConnection, operator: ActorId) -> Operator:
    return await _known(connection, operator)


@global_transaction(ROLE, "make {actor} the first operator")
async def ensure_operator(connection: AsyncConnection, actor: ActorId) -> bool:
    """Makes the user who sets the database up an operator with every right, if there is none."""
    await hold_lock(connection, OPERATORS)
    if await find_operators(connection):
        return False
    await _write_new(connection, actor, OperatorKind.PERSON, [Right()], actor, "the first operator")
    return True


@audits_refusals
@global_transaction(ROLE, "add operator {operator}")
async def add_operator(
    connection: AsyncConnection,
    operator: ActorId,
    *,
    kind: OperatorKind,
    rights: Iterable[Right] = (),
    actor: ActorId,
    reason: str,
) -> Operator:
    """Adds an operator, or one that was removed again, without a key."""
    await _begin(connection, actor)
    known = (await find_operators(connection, [operator])).get(str(operator))
    if known is not None and known.removed_at is None:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{operator} is an operator already; see `durable operator show {operator}`, and "
            "change its rights with `durable operator grant` and `revoke`.",
        )
    await _write_new(connection, operator, kind, rights, actor, reason)
    return await _known(connection, operator)


@audits_refusals
@global_transaction(ROLE, "remove operator {operator}")
async def remove_operator(
    connection: AsyncConnection, operator: ActorId, *, actor: ActorId, reason: str
) -> Operator:
    """Takes every right and the key away; the row stays, because the audit names it."""
    await _begin(connection, actor)
    before = await _known(connection, operator)
    await connection.execute(_REVOKE_ALL, {"operator": operator})
    await connection.execute(_REMOVE, {"operator": operator})
    await _refuse_to_leave_nobody(connection, operator)
    await _audit(connection, "remove operator", before, actor, {"reason": reason})
    return before


@audits_refusals
@global_transaction(ROLE, "grant rights to {operator}")
async def grant_right(
    connection: AsyncConnection, operator: ActorId, right: Right, *, actor: ActorId, reason: str
) -> Operator:
    """Grants one right; a second time changes nothing."""
    await _begin(connection, actor)
    before = await _known(connection, operator)
    row = {**_row(right), "operator": operator, "actor": actor}
    if (await connection.execute(_GRANT, row)).rowcount:
        after = {"right": str(right), "reason": reason}
        await _audit(connection, "grant right", before, actor, after)
    return await _known(connection, operator)


@audits_refusals
@global_transaction(ROLE, "revoke rights of {operator}")
async def revoke_right(
    connection: AsyncConnection, operator: ActorId, right: Right, *, actor: ActorId, reason: str
) -> Operator:
    """Revokes one right, as it was granted."""
    await _begin(connection, actor)
    before = await _known(connection, operator)
    if right not in before.rights:
        held = "; ".join(map(str, before.rights[:5])) or "none"
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{operator} was not granted {right}; its rights are: {held}.",
        )
    await connection.execute(_REVOKE, {**_row(right), "operator": operator})
    await _refuse_to_leave_nobody(connection, operator)
    after = {"right": str(right), "reason": reason}
    await _audit(connection, "revoke right", before, actor, after)
    return await _known(connection, operator)


@audits_refusals
@global_transaction(ROLE, "set the key of {operator}")
async def set_key(
    connection: AsyncConnection,
    operator: ActorId,
    public_key: str | None,
    *,
    actor: ActorId,
    reason: str,
) -> Operator:
    """Replaces the key by another, or by none; what the old one signed counts no more.

    Also one's own and first key needs the right to manage operators: an actor is a claim, so
    a sender could give a claimed name a key, and sign as the second person for what they proposed.
    """
    await hold_lock(connection, OPERATORS)
    before = await _known(connection, operator)
    await _require_key_right(connection, actor, before, public_key)
    await _refuse_shared_key(connection, operator, public_key)
    await connection.execute(_SET_KEY, {"operator": operator, "key": public_key})
    after = {"public_key": public_key, "before": before.public_key, "reason": reason}
    await _audit(connection, "set key", before, actor, after)
    return await _known(connection, operator)


@global_transaction("durable_reader", "look for tenant {tenant}")
async def refuse_unknown_tenant(connection: AsyncConnection, tenant: TenantId) -> None:
    """A right for a tenant that does not exist is a mistake."""
    names = set((await connection.execute(_TENANTS)).scalars())
    if str(tenant) not in names:
        known = ", ".join(sorted(names)[:5]) or "none yet; load a fleet first"
        raise RefusedError(
            RefusalCode.UNKNOWN_TENANT, f"There is no tenant {tenant}; known tenants: {known}."
        )


async def _require_key_right(
    connection: AsyncConnection, actor: ActorId, operator: Operator, public_key: str | None
) -> None:
    try:
        await require_right(connection, actor, Verb.OPERATORS, EVERYTHING)
    except NotAllowedError as refused:
        wanted = "--forget" if public_key is None else f"--public {public_key}"
        raise NotAllowedError(
            actor,
            refused.verb,
            refused.scope,
            refused.refusal.code,
            f"{actor} may not set keys, not even its own. Ask one with the right `operators`, "
            "who can confirm that the key is yours, to run "
            f"`durable operator key {operator.id} {wanted}`.",
        ) from refused


async def _refuse_shared_key(
    connection: AsyncConnection, operator: ActorId, public_key: str | None
) -> None:
    """One key is one person: with two names, one could approve what one proposed."""
    of = {"operator": operator, "key": public_key}
    other = (await connection.execute(_KEY_OF_ANOTHER, of)).scalar_one_or_none()
    if other is not None:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"That is the key of {other} already, and each operator has their own; make one for "
            f"{operator} with `durable operator key {operator}`.",
        )


async def _begin(connection: AsyncConnection, actor: ActorId) -> None:
    await hold_lock(connection, OPERATORS)
    await require_right(connection, actor, Verb.OPERATORS, EVERYTHING)


async def _write_new(
    connection: AsyncConnection,
    operator: ActorId,
    kind: OperatorKind,
    rights: Iterable[Right],
    actor: ActorId,
    reason: str,
) -> None:
    named = {"operator": operator, "actor": actor}
    await connection.execute(_ADD, {**named, "kind": kind.value})
    for right in rights:
        await connection.execute(_GRANT, {**named, **_row(right)})
    added = await _known(connection, operator)
    after = {"kind": kind.value, "rights": list(map(str, added.rights)), "reason": reason}
    await _audit(connection, "add operator", added, actor, after)


async def _known(connection: AsyncConnection, operator: ActorId) -> Operator:
    found = (await find_operators(connection, [operator])).get(str(operator))
    if found is None or found.removed_at is not None:
        raise RefusedError(
            RefusalCode.UNKNOWN_OPERATOR,
            f"{operator} is not an operator; see `durable operator list`.",
        )
    return found


async def _refuse_to_leave_nobody(connection: AsyncConnection, operator: ActorId) -> None:
    """Reads what the change left, which the refusal rolls back."""
    for one in (await find_operators(connection)).values():
        if one.removed_at is None and covers(one.rights, Verb.OPERATORS, EVERYTHING):
            return
    raise RefusedError(
        RefusalCode.WRONG_STATE,
        f"{operator} is the last who may manage operators; first grant that to another operator: "
        "`durable operator grant NAME operators`.",
    )


async def _audit(
    connection: AsyncConnection,
    action: str,
    operator: Operator,
    actor: ActorId,
    after: dict[str, Any],
) -> None:
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action=action,
        target=f"operator/{operator.id}",
        after=after,
    )


def _row(right: Right) -> dict[str, str]:
    return {
        "verb": ANY_VERB if right.verb is None else right.verb.value,
        "tenant": str(right.scope.tenant or ""),
        "region": str(right.scope.region or ""),
    }
