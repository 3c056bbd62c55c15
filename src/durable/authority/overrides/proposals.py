"""Proposing an override: one transaction, and in force at once if its kind needs no approval."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import Authorizer
from durable.authority.operators.ledger import RequestLedger
from durable.authority.overrides.rows import ROLE, lock_override, override_of
from durable.failpoints import Failpoint, reach
from durable.model.ids import OverrideId
from durable.model.operators.rights import OperatorMessage, OrderAnswer, Scope, Verb
from durable.model.overrides.effects import OverrideScope
from durable.model.overrides.kind import Kind
from durable.model.overrides.override import PROPOSAL_LASTS, Override
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import override_id
from durable.validation.quantities import show_duration
from durable.validation.text import show_moment

# Who proposes the same id at once waits here, and then finds the row.
_INSERT = text("""
    INSERT INTO global.overrides
           (override, kind, scope, effect, actor, reason, ticket, ttl_seconds, needs_approval,
            changed_by, state, proposed_at, activated_at, expires_at, latest_expiry)
    VALUES (:override, :kind, CAST(:scope AS jsonb), CAST(:effect AS jsonb), :actor, :reason,
            :ticket, :ttl_seconds, :needs_approval, :actor, :state, :now, :activated_at,
            :expires_at, :latest_expiry)
        ON CONFLICT (override) DO NOTHING
""")

_TENANT = text("SELECT EXISTS (SELECT FROM global.tenants WHERE tenant = :tenant)")
_WORKLOAD = text("""
    SELECT EXISTS (SELECT FROM global.workloads
                    WHERE tenant = :tenant AND workload = :workload AND deleted_at IS NULL)
""")


@dataclass(frozen=True)
class OverrideProposal:
    """What a person wants to be different for a while."""

    id: OverrideId
    kind: Kind
    scope: OverrideScope
    effect: dict[str, Any]
    ttl: timedelta
    ticket: str = ""


def rights_scope(scope: OverrideScope) -> Scope:
    return Scope(tenant=scope.tenant, region=scope.region)


@global_transaction(ROLE, "propose override {proposal.id}")
async def propose_override(
    connection: AsyncConnection, proposal: OverrideProposal, message: OperatorMessage
) -> OrderAnswer[Override]:
    """Records it, once per id; the same request again is answered as it was."""
    if await lock_override(connection, proposal.id) is not None:
        return await _recall(connection, proposal.id, message)
    actor, kind = message.actor, proposal.kind
    verb, scope = Verb(kind.verb), rights_scope(proposal.scope)
    authorizer = await Authorizer.read(connection, [actor])
    authorizer.check(message, verb, scope, needs_approval=kind.needs_approval)
    await _refuse_unknown(connection, proposal.scope)
    now = await read_clock(connection)
    if not (await connection.execute(_INSERT, _row(proposal, message, now))).rowcount:
        return await _recall(connection, proposal.id, message)
    answer = _answer(proposal, now)
    ledger = RequestLedger()
    ledger.record(message, {"answer": answer})
    await ledger.write(connection)
    written = await lock_override(connection, proposal.id)
    assert written is not None, "it was just written"
    override = override_of(written)
    target = override_id(proposal.id)
    events = [audit.Event(actor, "propose override", target, after=describe(override))]
    if not kind.needs_approval:
        after = {"expires_at": override.expires_at.isoformat(), "request": message.request_id}
        events.append(audit.Event(actor, "activate override", target, after=after))
    reach(Failpoint.BEFORE_AUDIT_PROPOSAL)
    await audit.append_all(connection, audit.GLOBAL_CHAIN, events)
    return OrderAnswer(target=override, sentence=answer)


def describe(override: Override) -> dict[str, Any]:
    """What the audit keeps of it."""
    shown = ("kind", "scope", "effect", "reason", "ticket", "ttl", "number", "expires_at")
    return override.model_dump(mode="json", include=set(shown), exclude_none=True)


def _row(proposal: OverrideProposal, message: OperatorMessage, now: datetime) -> dict[str, Any]:
    kind, waits = proposal.kind, proposal.kind.needs_approval
    lapses = now + PROPOSAL_LASTS
    return {
        "override": proposal.id,
        "kind": kind.name,
        "scope": proposal.scope.model_dump_json(exclude_none=True),
        "effect": json.dumps(proposal.effect),
        "actor": message.actor,
        "reason": message.reason,
        "ticket": proposal.ticket,
        "ttl_seconds": int(proposal.ttl.total_seconds()),
        "needs_approval": waits,
        "state": "proposed" if waits else "active",
        "now": now,
        "activated_at": None if waits else now,
        "expires_at": lapses if waits else now + proposal.ttl,
        "latest_expiry": lapses if waits else now + kind.longest_ttl,
    }


def _answer(proposal: OverrideProposal, now: datetime) -> str:
    kind = proposal.kind
    if kind.needs_approval:
        until = now + PROPOSAL_LASTS
        return (
            f"Proposed: {kind.name} on {proposal.scope} for {show_duration(proposal.ttl)}. A second"
            f" person has to approve it before {show_moment(until)}: `durable override "
            f"approve {proposal.id} --reason ...`."
        )
    until = now + proposal.ttl
    return f"In force: {kind.name} on {proposal.scope} until {show_moment(until)}."


async def _recall(
    connection: AsyncConnection, id: OverrideId, message: OperatorMessage
) -> OrderAnswer[Override]:
    row = await lock_override(connection, id)
    assert row is not None, "an override is never deleted"
    override = override_of(row)
    again = (await RequestLedger.read(connection, [message])).repeat(message)
    if again is None:
        raise RefusedError(
            RefusalCode.KEY_CONFLICT,
            f"There is an override {override.id} already, {override.state}: {override} by "
            f"{override.actor} ({override.reason[:200]}); choose another name.",
        )
    return OrderAnswer(target=override, sentence=again)


async def _refuse_unknown(connection: AsyncConnection, scope: OverrideScope) -> None:
    if scope.tenant is None:
        return
    if not (await connection.execute(_TENANT, {"tenant": scope.tenant})).scalar_one():
        raise RefusedError(
            RefusalCode.UNKNOWN_TENANT,
            f"There is no tenant {scope.tenant}; see `durable get tenants`.",
        )
    if scope.workload is None:
        return
    of = {"tenant": scope.tenant, "workload": scope.workload}
    if not (await connection.execute(_WORKLOAD, of)).scalar_one():
        raise RefusedError(
            RefusalCode.UNKNOWN_WORKLOAD,
            f"There is no workload {scope.tenant}/{scope.workload}; see `durable get workloads`.",
        )
