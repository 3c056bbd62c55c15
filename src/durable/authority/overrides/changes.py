"""What becomes of a proposed or active override: approved, rejected, revoked, extended, expired.

Each is one transaction that locks the row, reads the clock after the lock, and writes the change,
the answer and the audit together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, assert_never

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import Authorizer
from durable.authority.operators.ledger import RequestLedger
from durable.authority.overrides.proposals import rights_scope
from durable.authority.overrides.rows import (
    ROLE,
    lock_override,
    override_of,
    unknown_override,
)
from durable.failpoints import Failpoint, reach
from durable.model.ids import ActorId, OverrideId
from durable.model.operators.rights import OperatorKind, OperatorMessage, OrderAnswer, Verb
from durable.model.overrides.override import (
    Override,
    check_approval,
    check_extension,
    check_rejection,
    check_revocation,
    is_overdue,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState
from durable.signals.names import override_id
from durable.validation.text import shorten, show_moment

ACTOR = ActorId("controller:override")
# An override that was changed so often is not extended any more; everything else happens once.
MAX_CHANGES = 100

_UPDATE = text("""
    UPDATE global.overrides
       SET number = number + 1, state = :state, approver = :approver, changed_by = :changed_by,
           activated_at = :activated_at, expires_at = :expires_at, latest_expiry = :latest_expiry,
           ended_at = :ended_at, outcome = :outcome
     WHERE override = :override
""")


class ChangeKind(StrEnum):
    """What people send to an override; each is the name of its message."""

    APPROVE = "approve"
    REJECT = "reject"
    REVOKE = "revoke"
    EXTEND = "extend"


@dataclass(frozen=True)
class Change:
    """One message; `by` only for an extension."""

    id: OverrideId
    kind: ChangeKind
    by: timedelta = timedelta(0)


@dataclass(frozen=True)
class _Effect:
    """Which columns become what, how the audit calls it, and what the sender is answered."""

    columns: dict[str, Any]
    action: str
    answer: str


@global_transaction(ROLE, "{change.kind} override {change.id}")
async def change_override(
    connection: AsyncConnection, change: Change, message: OperatorMessage
) -> OrderAnswer[Override]:
    """Makes the change, once per request id."""
    row = await lock_override(connection, change.id)
    if row is None:
        raise unknown_override(change.id)
    override = override_of(row)
    ledger = await RequestLedger.read(connection, [message])
    again = ledger.repeat(message)
    if again is not None:
        return OrderAnswer(target=override, sentence=again)
    verb, scope = verb_of(change, override), rights_scope(override.scope)
    authorizer = await Authorizer.read(connection, [message.actor])
    operator = authorizer.check_right(message.actor, verb, scope)
    if change.kind is ChangeKind.EXTEND:
        _refuse_further(override)
    now = await read_clock(connection)
    written = _decide(override, change, message, operator.kind, now)
    # Last: no sender is asked to sign what would be refused however it was signed.
    extends = change.kind is ChangeKind.EXTEND
    authorizer.check_signature(
        operator, message, verb, scope, needs_approval=extends and override.of_kind.needs_approval
    )
    sent = {"reason": message.reason, "request": message.request_id}
    after = await _write(connection, override, written, actor=message.actor, sent=sent)
    ledger.record(message, {"answer": written.answer})
    await ledger.write(connection)
    return OrderAnswer(target=after, sentence=written.answer)


def _refuse_further(override: Override) -> None:
    """Refuses the one change that could be made for ever."""
    if override.number >= MAX_CHANGES:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"This override was changed {MAX_CHANGES} times, so it is not extended any more; "
            "revoke it and propose another.",
        )


@global_transaction(ROLE, "expire override {override}")
async def expire_override(connection: AsyncConnection, override: OverrideId) -> Override:
    """Records that its time is over, if it is by the database's clock; answers what it is now."""
    row = await lock_override(connection, override)
    if row is None:
        raise unknown_override(override)
    found = override_of(row)
    now = await read_clock(connection)
    if not is_overdue(found, now):
        return found
    was = found.state is OverrideState.PROPOSED
    outcome = "it was not approved in time" if was else "its time was over"
    columns = _ended(OverrideState.EXPIRED, now, outcome)
    written = _Effect(columns, "end override", outcome)
    return await _write(connection, found, written, actor=ACTOR)


def verb_of(change: Change, override: Override) -> Verb:
    """The right that a change takes."""
    if change.kind in (ChangeKind.APPROVE, ChangeKind.REJECT):
        return Verb.APPROVE
    return Verb(override.of_kind.verb)


def _decide(
    override: Override,
    change: Change,
    message: OperatorMessage,
    kind: OperatorKind,
    now: datetime,
) -> _Effect:
    actor, reason = message.actor, message.reason
    match change.kind:
        case ChangeKind.APPROVE:
            check_approval(override, actor, now, kind=kind)
            until = now + override.ttl
            columns = {
                "state": OverrideState.ACTIVE, "approver": actor, "activated_at": now,
                "expires_at": until, "latest_expiry": now + override.of_kind.longest_ttl,
            }  # fmt: skip
            answer = f"Approved: {override} is in force until {show_moment(until)}."
            return _Effect(columns, "activate override", answer)
        case ChangeKind.REJECT:
            check_rejection(override, now)
            outcome = f"rejected by {actor}: {reason}"
            columns = _ended(OverrideState.REJECTED, now, outcome)
            return _Effect(columns, "end override", "Rejected: it never had an effect.")
        case ChangeKind.REVOKE:
            check_revocation(override, now)
            outcome = f"revoked by {actor}: {reason}"
            columns = _ended(OverrideState.REVOKED, now, outcome)
            return _Effect(columns, "end override", "Revoked.")
        case ChangeKind.EXTEND:
            until = check_extension(override, actor, change.by, now, kind=kind)
            answer = f"Extended: {override} is in force until {show_moment(until)}."
            return _Effect({"expires_at": until}, "extend override", answer)
    assert_never(change.kind)


def _ended(state: OverrideState, now: datetime, outcome: str) -> dict[str, Any]:
    return {"state": state, "ended_at": now, "outcome": shorten(outcome)}


_COLUMNS = (
    "state", "approver", "activated_at", "expires_at", "latest_expiry", "ended_at", "outcome",
)  # fmt: skip


async def _write(
    connection: AsyncConnection,
    override: Override,
    written: _Effect,
    *,
    actor: ActorId,
    sent: Mapping[str, str] = MappingProxyType({}),
) -> Override:
    before = {name: getattr(override, name) for name in _COLUMNS}
    after = {**before, **written.columns}
    values = {**after, "state": OverrideState(after["state"]).value}
    await connection.execute(
        _UPDATE,
        {
            **values,
            "override": override.id,
            "changed_by": actor,
        },
    )
    reach(Failpoint.BEFORE_AUDIT_CHANGE)
    changed = override.model_copy(
        update={**written.columns, "number": override.number + 1, "changed_by": actor}
    )
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor,
        action=written.action,
        target=override_id(override.id),
        before=_shown(override),
        after={**_shown(changed), "answer": written.answer, **sent},
    )
    return changed


def _shown(override: Override) -> dict[str, Any]:
    shown = {"state", "approver", "number", "expires_at", "outcome"}
    return override.model_dump(mode="json", include=shown, exclude_none=True)
