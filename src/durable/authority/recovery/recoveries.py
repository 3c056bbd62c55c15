"""The rows of recoveries: begun by a suspicion or a person, brought from phase to phase.

Every change is one transaction with its audit, and again is harmless.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import TextClause, text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.authority.operators.authorization import authorize
from durable.authority.operators.ledger import RequestLedger
from durable.authority.recovery.region_facts import lock_fact
from durable.authority.recovery.suspicions import suspicion_of
from durable.model.fleet.region_life import RegionFact
from durable.model.ids import ActorId, IncidentId, RegionId
from durable.model.operators.rights import OperatorMessage, OrderAnswer, Scope, Verb
from durable.model.recovery.recoveries import (
    ENDED,
    Recovery,
    RecoveryKey,
    RecoveryOrderKind,
    RecoveryPhase,
    WorkloadMove,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from durable.planners.recovery.orders import answer_to, apply_order
from durable.validation.text import shorten

ROLE = "durable_recovery"
LISTED = 100

_LOCK = text("SELECT * FROM global.recoveries WHERE region = :region AND epoch = :epoch FOR UPDATE")
_OF_INCIDENT = text("SELECT * FROM global.recoveries WHERE incident = :incident")
_LIST_OPEN = text("""
    SELECT * FROM global.recoveries WHERE ended_at IS NULL ORDER BY started_at DESC
""")
_LIST_ALL = text("SELECT * FROM global.recoveries ORDER BY started_at DESC LIMIT :most")
_NEWEST = text("""
    SELECT * FROM global.recoveries WHERE region = :region ORDER BY epoch DESC LIMIT 1
""")
_BEGIN = text("""
    INSERT INTO global.recoveries
           (region, epoch, incident, phase, actor, reason, evidence, lost_at, started_at,
            changed_at, ended_at)
    SELECT :region, :epoch, :incident, :phase, :actor, :reason, CAST(:evidence AS jsonb),
           coalesce(CAST(:lost_at AS timestamptz), clock.now), clock.now, clock.now,
           CASE WHEN :has_ended THEN clock.now END
      FROM (SELECT clock_timestamp() AS now) AS clock
    RETURNING *
""")
_REACH = text("""
    UPDATE global.recoveries
       SET phase = :phase, actor = :actor, reason = :reason, changed_at = clock_timestamp(),
           ended_at = CASE WHEN :has_ended THEN clock_timestamp() END,
           fenced_at = coalesce(CAST(:fenced_at AS timestamptz), fenced_at),
           movable_at = coalesce(CAST(:movable_at AS timestamptz), movable_at),
           moved_at = coalesce(moved_at, CASE WHEN :has_moved THEN clock_timestamp() END),
           findings = coalesce(CAST(:findings AS jsonb), findings)
     WHERE region = :region AND epoch = :epoch
    RETURNING *
""")
# Before its fence, another suspicion is another loss at the same epoch.
_RENEW = text("""
    UPDATE global.recoveries
       SET phase = :phase, actor = :actor, reason = :reason, evidence = CAST(:evidence AS jsonb),
           lost_at = coalesce(CAST(:lost_at AS timestamptz), clock_timestamp()),
           changed_at = clock_timestamp(), ended_at = NULL
     WHERE region = :region AND epoch = :epoch
    RETURNING *
""")
_NOTE = text("""
    UPDATE global.recoveries
       SET draws = CAST(:draws AS jsonb), back_since = CAST(:back_since AS timestamptz),
           movable_at = CAST(:movable_at AS timestamptz)
     WHERE region = :region AND epoch = :epoch
""")
# Since work was last left where it is: losses that came one upon another, and those after which
# something did not go back. One that has not ended waits for a budget to be closed, and moves
# nothing any more.
_SUPERSEDED = text("""
    SELECT region, epoch FROM global.recoveries AS r
     WHERE region = :region AND epoch < :epoch
       AND (phase IN ('superseded', 'failed_back') OR ended_at IS NULL)
       AND EXISTS (SELECT FROM global.recovery_moves AS m
                    WHERE m.region = r.region AND m.epoch = r.epoch
                      AND m.kind = 'service' AND m.moved_at IS NOT NULL
                      AND (m.returned_at IS NULL OR m.returned_at >= (
                           SELECT started_at FROM global.recoveries
                            WHERE region = :region AND epoch = :epoch)))
       AND epoch > coalesce((SELECT max(epoch) FROM global.recoveries
                              WHERE region = :region AND epoch < :epoch
                                AND phase = 'settled'), 0)
     ORDER BY epoch
""")
_MOVES = text("""
    SELECT * FROM global.recovery_moves WHERE region = :region AND epoch = :epoch
     ORDER BY priority DESC, tenant, workload
""")
_MEASURED = sent_rows(
    "rows",
    "row",
    "tenant text, workload text, serving integer, placed integer, recovered_at timestamptz,"
    " whole_at timestamptz, waits text",
)
_MEASURE = text(f"""
    UPDATE global.recovery_moves AS m
       SET serving = row.serving, placed = row.placed, waits = row.waits,
           recovered_at = coalesce(m.recovered_at, row.recovered_at),
           whole_at = coalesce(m.whole_at, row.whole_at)
      FROM {_MEASURED}
     WHERE m.region = :region AND m.epoch = :epoch
       AND m.tenant = row.tenant AND m.workload = row.workload
""")


@global_transaction("durable_reader", "read the recovery of {incident}")
async def recovery_of_incident(
    connection: AsyncConnection, incident: IncidentId
) -> Recovery | None:
    """The one that draws under this name; None if it is no recovery's."""
    row = (await connection.execute(_OF_INCIDENT, {"incident": incident})).mappings().first()
    return None if row is None else Recovery.read(dict(row))


@global_transaction("durable_reader", "read the newest recovery of {region}")
async def newest_recovery(connection: AsyncConnection, region: RegionId) -> Recovery | None:
    row = (await connection.execute(_NEWEST, {"region": region})).mappings().one_or_none()
    return None if row is None else Recovery.read(dict(row))


@global_transaction("durable_reader", "read the recoveries")
async def list_recoveries(
    connection: AsyncConnection, *, ended: bool = False, most: int = LISTED
) -> list[Recovery]:
    """All that are under way, the newest first; with `ended`, the newest of all."""
    found = (
        connection.execute(_LIST_ALL, {"most": most}) if ended else connection.execute(_LIST_OPEN)
    )
    rows = await found
    return [Recovery.read(dict(row)) for row in rows.mappings()]


@global_transaction("durable_reader", "read what {key} moves")
async def read_moves(connection: AsyncConnection, key: RecoveryKey) -> list[WorkloadMove]:
    rows = await connection.execute(_MOVES, of_key(key))
    return [WorkloadMove.read(dict(row)) for row in rows.mappings()]


@global_transaction("durable_reader", "read which losses {key} follows upon")
async def superseded_by(connection: AsyncConnection, key: RecoveryKey) -> list[RecoveryKey]:
    """Earlier losses of the region of which something had not gone back, the first first."""
    rows = await connection.execute(_SUPERSEDED, of_key(key))
    return [RecoveryKey(region=RegionId(row.region), epoch=row.epoch) for row in rows]


@global_transaction(ROLE, "begin {key}")
async def begin_suspected(
    connection: AsyncConnection, key: RecoveryKey, *, actor: ActorId
) -> Recovery | None:
    """The recovery of a region that is suspected; None if there is neither one nor the other.

    One that was vetoed or dismissed begins again with the next suspicion, not with the same one.
    """
    fact = await lock_fact(connection, key.region)
    known = await _find(connection, key, _LOCK)
    is_suspected = fact.state is RegionState.SUSPECTED and fact.epoch == key.epoch - 1
    if known is not None and not (is_suspected and _is_another_loss(known, fact)):
        return known
    if not is_suspected:
        return None
    begun = await _begin(
        connection,
        _BEGIN if known is None else _RENEW,
        key,
        RecoveryPhase.SUSPECTED,
        actor=actor,
        reason=fact.reason or "its signs of life ended together",
        evidence=dict(fact.evidence),
        lost_at=fact.since,
    )
    await _audit(connection, "suspect region", begun, known, {"evidence": dict(fact.evidence)})
    return begun


@global_transaction(ROLE, "{message.message} {message.workflow_id}")
async def take_order(
    connection: AsyncConnection,
    message: OperatorMessage,
    *,
    by_policy: bool = False,
    at_phase: RecoveryPhase | None = None,
) -> OrderAnswer[Recovery]:
    """The recovery as the order leaves it, once per request id.

    What is ordered by policy takes no right, and names the phase at which it is: what a person
    ordered meanwhile stands.
    """
    key, kind = RecoveryKey.of_id(message.workflow_id), RecoveryOrderKind(message.message)
    fact = await lock_fact(connection, key.region)
    before = await _find(connection, key, _LOCK)
    if at_phase is not None and before is not None and before.phase is not at_phase:
        return OrderAnswer(target=before, sentence=answer_to(kind, before))
    ledger = await RequestLedger.read(connection, [message])
    again = ledger.repeat(message)
    if again is not None:
        assert before is not None, "an order has its recovery"
        return OrderAnswer(target=before, sentence=again)
    if not by_policy:
        await authorize(connection, message, Verb.FENCE, Scope(region=key.region))
    is_fenced = fact.is_fenced and fact.epoch >= key.epoch
    phase = apply_order(before, kind, region=str(key.region), is_fenced=is_fenced)
    if before is None and fact.epoch != key.epoch - 1:
        raise RefusedError(
            RefusalCode.FENCED_WRITER,
            f"{key.region} is at epoch {fact.epoch}, so {key} is not its next recovery; see "
            "`durable get recoveries`.",
        )
    is_again = before is not None and before.has_ended and phase not in ENDED and not is_fenced
    if before is None or is_again:
        after = await _begin(
            connection,
            _BEGIN if before is None else _RENEW,
            key,
            phase,
            actor=message.actor,
            reason=message.reason,
            evidence=dict(fact.evidence) or {"declared_by": str(message.actor)},
            lost_at=_lost_at(fact),
        )
    elif phase is before.phase and phase is not RecoveryPhase.VETOED:
        after = before  # a veto, however, is also one of what is suspected since the last one
    else:
        after = await _reach(connection, before, phase, actor=message.actor, reason=message.reason)
    answer = answer_to(kind, after)
    ledger.record(message, {"answer": answer})
    await ledger.write(connection)
    said = {"reason": message.reason, "request": message.request_id}
    await _audit(connection, f"{kind} recovery", after, before, said, actor=message.actor)
    return OrderAnswer(target=after, sentence=answer)


@global_transaction(ROLE, "bring {recovery.key} to {phase}")
async def reach_phase(
    connection: AsyncConnection,
    recovery: Recovery,
    phase: RecoveryPhase,
    *,
    actor: ActorId,
    reason: str,
    fenced_at: datetime | None = None,
    movable_at: datetime | None = None,
    findings: Sequence[str] | None = None,
) -> Recovery:
    """The next phase, unless a person ordered something else meanwhile."""
    before = await _find(connection, recovery.key, _LOCK)
    assert before is not None, "a recovery keeps its row"
    if before.phase is not recovery.phase:
        return before
    after = await _reach(
        connection,
        before,
        phase,
        actor=actor,
        reason=reason,
        fenced_at=fenced_at,
        movable_at=movable_at,
        findings=None if findings is None else json.dumps(list(findings)),
    )
    said: dict[str, Any] = {"reason": reason, "findings": list(findings or ())}
    await _audit(connection, "reach recovery phase", after, before, said, actor=actor)
    return after


@global_transaction(ROLE, "note how {recovery.key} goes")
async def note(connection: AsyncConnection, recovery: Recovery) -> None:
    """Keeps which budgets are open, from when on slots may go, and since when it looks well."""
    draws = recovery.model_dump(mode="json", include={"draws"})["draws"]
    times = {"back_since": recovery.back_since, "movable_at": recovery.movable_at}
    await connection.execute(_NOTE, {**of_key(recovery.key), **times, "draws": json.dumps(draws)})


@global_transaction(ROLE, "measure {key}")
async def record_measures(
    connection: AsyncConnection, key: RecoveryKey, moves: Iterable[WorkloadMove]
) -> None:
    """Keeps how far moves have come; a moment that was reached stays."""
    rows = [one.model_dump(mode="json") for one in moves]
    if rows:
        await connection.execute(_MEASURE, {**of_key(key), "rows": json.dumps(rows)})


def of_key(key: RecoveryKey) -> dict[str, Any]:
    """As parameters of a statement."""
    return {"region": str(key.region), "epoch": key.epoch}


async def _find(connection: AsyncConnection, key: RecoveryKey, statement: Any) -> Recovery | None:
    row = (await connection.execute(statement, of_key(key))).mappings().one_or_none()
    return None if row is None else Recovery.read(dict(row))


async def _begin(
    connection: AsyncConnection,
    statement: TextClause,
    key: RecoveryKey,
    phase: RecoveryPhase,
    *,
    actor: ActorId,
    reason: str,
    evidence: Mapping[str, Any],
    lost_at: datetime | None,
) -> Recovery:
    """By `_BEGIN`; by `_RENEW` if it ended before anything was changed."""
    values = {
        **of_key(key),
        "incident": key.incident,
        "phase": phase.value,
        "actor": actor,
        "reason": shorten(reason),
        "evidence": json.dumps(evidence),
        "lost_at": lost_at,
        "has_ended": phase in ENDED,
    }
    row = (await connection.execute(statement, values)).mappings().one()
    return Recovery.read(dict(row))


def _lost_at(fact: RegionFact) -> datetime | None:
    """When a region was lost that a person declares lost; None: now, for all that is known."""
    if fact.state is RegionState.SUSPECTED:
        return fact.since
    return fact.last_sign_at if fact.has_lapsed else None


def _is_another_loss(known: Recovery, fact: RegionFact) -> bool:
    """Whether a suspicion is not the one that was dismissed, or that was vetoed."""
    if known.phase is RecoveryPhase.DISMISSED:
        return known.evidence.get("since") != fact.evidence.get("since")
    suspicion = suspicion_of(fact) if known.phase is RecoveryPhase.VETOED else None
    return suspicion is not None and suspicion.since > known.changed_at


async def _reach(
    connection: AsyncConnection,
    before: Recovery,
    phase: RecoveryPhase,
    *,
    actor: ActorId,
    reason: str,
    **known: Any,
) -> Recovery:
    values = {
        **of_key(before.key),
        "fenced_at": None,
        "movable_at": None,
        "findings": None,
        **known,
        "phase": phase.value,
        "actor": actor,
        "reason": shorten(reason),
        "has_ended": phase in ENDED,
        "has_moved": phase is RecoveryPhase.HOLDING,
    }
    return Recovery.read(dict((await connection.execute(_REACH, values)).mappings().one()))


async def _audit(
    connection: AsyncConnection,
    action: str,
    after: Recovery,
    before: Recovery | None,
    said: Mapping[str, Any],
    *,
    actor: ActorId | None = None,
) -> None:
    await audit.append(
        connection,
        audit.GLOBAL_CHAIN,
        actor=actor or after.actor,
        action=action,
        target=str(after.key),
        before=None if before is None else {"phase": before.phase},
        after={"phase": after.phase, **said},
    )
